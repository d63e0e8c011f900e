#include "compile/choose_linear.hpp"

#include "base/check.hpp"
#include "graph/fuse_linear.hpp"
#include "kernels/isa.hpp"

namespace pagewheel {
namespace {

/// Batch invariance leaves nothing to the number of rows.
kernels::ActivationPrecision activations_of(const CompileOptions& options) {
    const bool free = options.activations == kernels::ActivationPrecision::automatic;
    return options.batch_invariant && free ? kernels::ActivationPrecision::int16
                                           : options.activations;
}

}  // namespace

std::optional<QuantizedLinearReport> choose_linear(const std::shared_ptr<ov::Model>& model,
                                                   const CompileOptions& options) {
    const bool rounded = options.activations != kernels::ActivationPrecision::automatic;
    check_argument(
        !rounded ||
            (options.linear != Backend::OPENVINO && options.on_cpu && !options.exact_activations),
        "activation_precision is of pagewheel's linear layers, which run on CPU, but the "
        "properties ask for OpenVINO's, f32 inference or no dynamic quantisation; "
        "allowed there: auto");
    if (options.linear == Backend::OPENVINO) return {};
    const bool asked = options.linear == Backend::NATIVE || rounded || options.batch_invariant;
    const bool gains =
        options.on_cpu && !options.exact_activations && detected_isa() != Isa::scalar;
    if (!asked && !gains) return {};
    check_argument(options.on_cpu, "linear_backend 'native' runs on CPU, not ", options.device);
    check_argument(!options.exact_activations,
                   "linear_backend is 'native', which quantises activations, but the "
                   "properties ask for f32 inference or no dynamic quantisation");
    QuantizedLinearReport report = use_quantized_linear(model, activations_of(options));
    check_argument(!asked || report.num_matrices > 0,
                   options.batch_invariant ? "batch_invariant is true"
                   : rounded               ? "activation_precision is set"
                                           : "linear_backend is 'native'",
                   ", but no MatMul has compressed weights that pagewheel takes; allowed for this "
                   "model: ",
                   options.batch_invariant ? "batch_invariant false"
                   : rounded               ? "activation_precision auto"
                                           : "linear_backend auto, openvino");
    fuse_norms(model);
    fuse_gated_mlps(model);
    fuse_residuals(model);
    fuse_rotary(model);
    return report;
}

}  // namespace pagewheel
