#include "kernels/activation_choice.hpp"

#include <algorithm>
#include <iterator>

#include "base/check.hpp"

namespace pagewheel::kernels {
namespace {

/// Up to how many rows int16 is taken. Reading the weights takes the time of a call of few rows, so
/// twice the multiplications cost nothing; with more rows they would.
struct Entry {
    const char* isa;
    CpuFeatures required;
    size_t int16_rows;
};

/// The first that fits. docs/quantized_linear.md has the figures and the command that measures them.
const Entry table[] = {
    {"avx512", {}, 8},
    {"avx2", {CpuFeature::avx_vnni}, 4},
    {"avx2", {}, 2},
    {"scalar", {}, 2},
};

const Entry& entry_of(Isa isa) {
    static const CpuFeatures features = processor_features();
    return *std::find_if(std::begin(table), std::end(table), [&](const Entry& entry) {
        return isa.name() == std::string(entry.isa) && features.has_all(entry.required);
    });
}

}  // namespace

ActivationPrecision parse_activation_precision(const std::string& key, const std::string& name) {
    if (name == "auto") return ActivationPrecision::automatic;
    if (name == "int8") return ActivationPrecision::int8;
    check_argument(name == "int16", key, " is '", name, "'; allowed: auto, int8, int16");
    return ActivationPrecision::int16;
}

Activations choose_activations(ActivationPrecision precision, size_t rows, Isa isa) {
    switch (precision) {
        case ActivationPrecision::int8:
            return Activations::int8;
        case ActivationPrecision::int16:
            return Activations::int16;
        case ActivationPrecision::automatic:
            return rows <= entry_of(isa).int16_rows ? Activations::int16 : Activations::int8;
    }
    __builtin_unreachable();
}

}  // namespace pagewheel::kernels
