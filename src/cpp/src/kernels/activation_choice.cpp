#include "kernels/activation_choice.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "base/check.hpp"

namespace pagewheel::kernels {
namespace {

/// Up to int16_rows calls get int16: reading the weights takes so long that twice the
/// multiplications cost little or nothing. Longer calls get bf16 where it is, which answers as f32
/// does and from there on takes no longer than int16; elsewhere int8.
struct Entry {
    std::string_view isa;
    CpuFeatures required;
    size_t int16_rows;
};

/// The first that fits. docs/quantized_linear.md has the figures and the command that measures
/// them.
constexpr Entry table[] = {
    {"amx", {}, 15},                            // computed from avx512's and a prototype's figures
    {"amx_model", {}, 15},                      // as amx, whose answers it is to give
    {"avx512", {CpuFeature::avx512_bf16}, 24},  // Zen 5, 2026-11-22
    {"avx512", {}, 8},                          // the same kernels up to there
    {"avx2", {CpuFeature::avx_vnni}, 4},        // Zen 5, 2026-11-22
    {"avx2", {}, 2},                            // Zen 5, 2026-11-22
    {"scalar", {}, 2},
};

size_t int16_rows(Isa isa) {
    static const CpuFeatures features = processor_features();
    return std::find_if(std::begin(table), std::end(table),
                        [&](const Entry& entry) {
                            return isa.name() == entry.isa && features.has_all(entry.required);
                        })
        ->int16_rows;
}

}  // namespace

ActivationPrecision parse_activation_precision(const std::string& key, const std::string& name) {
    if (name == "auto") return ActivationPrecision::automatic;
    if (name == "int8") return ActivationPrecision::int8;
    if (name == "int16") return ActivationPrecision::int16;
    check_argument(name == "bf16", key, " is '", name, "'; allowed: auto, int8, int16, bf16");
    check_argument(has_bf16_activations(detected_isa()), key, " is 'bf16', but ",
                   isa_name(detected_isa()),
                   " has no products of bf16 here; allowed: auto, int8, int16");
    return ActivationPrecision::bf16;
}

Activations choose_activations(ActivationPrecision precision, size_t rows, Isa isa) {
    switch (precision) {
        case ActivationPrecision::int8:
            return Activations::int8;
        case ActivationPrecision::int16:
            return Activations::int16;
        case ActivationPrecision::bf16:
        case ActivationPrecision::automatic:
            if (rows <= int16_rows(isa)) return Activations::int16;
            return has_bf16_activations(isa) ? Activations::bf16 : Activations::int8;
    }
    __builtin_unreachable();
}

std::string describe_activations(ActivationPrecision precision, Isa isa) {
    const std::string kernels = concat(isa_name(isa), " kernels, activations in ");
    switch (precision) {
        case ActivationPrecision::int8:
            return kernels + "int8";
        case ActivationPrecision::int16:
            return kernels + "int16";
        case ActivationPrecision::bf16:
        case ActivationPrecision::automatic:
            return concat(kernels, "int16 up to ", int16_rows(isa), " rows, then in ",
                          has_bf16_activations(isa) ? "bf16" : "int8");
    }
    __builtin_unreachable();
}

}  // namespace pagewheel::kernels
