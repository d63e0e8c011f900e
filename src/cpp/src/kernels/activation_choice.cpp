#include "kernels/activation_choice.hpp"

#include <algorithm>
#include <iterator>
#include <limits>

#include "base/check.hpp"

namespace pagewheel::kernels {
namespace {

struct Entry {
    std::string_view isa;
    CpuFeatures required;
    AutomaticActivations choice;
};

constexpr auto int8 = Activations::int8, bf16 = Activations::bf16;
constexpr std::string_view no_bf16 = "there are no products of bf16";

/// The first that fits. docs/quantized_linear.md has the figures and the command that measures
/// them.
constexpr Entry table[] = {
    {"amx", {}, {8, bf16, "AMX multiplies bf16 fastest", 8}},  // a Xeon, 2026-11-28
    {"amx_model", {}, {8, bf16, "as AMX, whose answers it gives", 8}},
    {"avx512",
     {CpuFeature::fast_avx512_bf16},
     {24, bf16, "AVX512_BF16 is fast on this vendor's processors", 32, true}},  // Zen 5, 2026-11-26
    {"avx512",
     {CpuFeature::avx512_bf16},
     {8, int8, "AVX512_BF16 is slow on this vendor's processors, and AMX is not used", 8}},
    {"avx512", {}, {8, int8, no_bf16, 8}},                    // Zen 5's kernels up to there
    {"avx2", {CpuFeature::avx_vnni}, {4, int8, no_bf16, 4}},  // Zen 5, 2026-11-22
    {"avx2", {}, {2, int8, no_bf16, 2}},                      // Zen 5, 2026-11-22
    {"scalar", {}, {2, bf16, "the reference has no speed to lose", 2}},
};

const AutomaticActivations& automatic_activations_here(Isa isa) {
    static const CpuFeatures features = processor_features();
    return automatic_activations(isa, features);
}

}  // namespace

const AutomaticActivations& automatic_activations(Isa isa, CpuFeatures features) {
    return std::find_if(std::begin(table), std::end(table),
                        [&](const Entry& entry) {
                            return isa.name() == entry.isa && features.has_all(entry.required);
                        })
        ->choice;
}

ActivationPrecision parse_activation_precision(const std::string& key, const std::string& name) {
    if (name == "auto") return ActivationPrecision::automatic;
    if (name == "int8") return ActivationPrecision::int8;
    if (name == "int16") return ActivationPrecision::int16;
    check_argument(name == "bf16", ParameterName(key), " is '", name,
                   "'; allowed: auto, int8, int16, bf16");
    const AutomaticActivations& choice = automatic_activations_here(detected_isa());
    check_argument(has_fast_bf16(detected_isa()), ParameterName(key),
                   " is 'bf16', but the kernels are ", detected_isa().name(), "'s: ", choice.why,
                   "; allowed: auto, int8, int16");
    return ActivationPrecision::bf16;
}

bool has_fast_bf16(Isa isa) {
    return automatic_activations_here(isa).many_rows == Activations::bf16;
}

Activations choose_activations(ActivationPrecision precision, size_t rows, WeightForm form,
                               Isa isa) {
    if (form == WeightForm::bf16) return Activations::bf16;
    switch (precision) {
        case ActivationPrecision::int8:
            return Activations::int8;
        case ActivationPrecision::int16:
            return Activations::int16;
        case ActivationPrecision::bf16:
        case ActivationPrecision::automatic:
            break;
    }
    const AutomaticActivations& choice = automatic_activations_here(isa);
    const bool always =
        form == WeightForm::u4 && choice.int16_of_u4 && precision == ActivationPrecision::automatic;
    return always || rows <= choice.int16_rows ? Activations::int16 : choice.many_rows;
}

size_t most_exact_rows(ActivationPrecision precision, Isa isa) {
    const bool by_rows =
        precision == ActivationPrecision::automatic || precision == ActivationPrecision::bf16;
    return by_rows ? automatic_activations_here(isa).int16_rows
                   : std::numeric_limits<size_t>::max();
}

Activations choose_expert_activations(ActivationPrecision precision, size_t rows,
                                      size_t expert_rows, WeightForm form, Isa isa) {
    const Activations of_call = choose_activations(precision, rows, form, isa);
    if (form == WeightForm::bf16) return of_call;
    const bool free =
        precision == ActivationPrecision::automatic || precision == ActivationPrecision::bf16;
    const bool few = expert_rows <= automatic_activations_here(isa).expert_int16_rows;
    return free && few ? Activations::int16 : of_call;
}

std::string describe_activations(ActivationPrecision precision, Isa isa) {
    const std::string kernels = concat(isa.name(), " kernels, activations in ");
    switch (precision) {
        case ActivationPrecision::int8:
            return kernels + "int8";
        case ActivationPrecision::int16:
            return kernels + "int16";
        case ActivationPrecision::bf16:
        case ActivationPrecision::automatic:
            break;
    }
    const AutomaticActivations& choice = automatic_activations_here(isa);
    const bool always = choice.int16_of_u4 && precision == ActivationPrecision::automatic;
    return concat(kernels, "int16 up to ", choice.int16_rows, " rows",
                  always ? " and for weights of 4 bits" : "",
                  choice.many_rows == Activations::bf16
                      ? ", then and for weights of 16 bits in bf16: "
                      : ", then in int8: ",
                  choice.why);
}

}  // namespace pagewheel::kernels
