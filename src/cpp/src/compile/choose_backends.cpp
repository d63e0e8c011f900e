#include "compile/choose_backends.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "base/check.hpp"
#include "graph/fuse_linear.hpp"
#include "graph/routed_experts.hpp"
#include "kernels/isa.hpp"

namespace pagewheel {
namespace {

/// What the graph is told about rotation, by layer.
std::vector<LayerRotary> layer_rotary(const RotaryDescription& rotary) {
    std::vector<LayerRotary> layers;
    if (rotary.kinds.empty()) return layers;
    for (size_t i = 0; i < std::max<size_t>(1, rotary.layer_kinds.size()); ++i) {
        const size_t kind = rotary.kind_of(i);
        layers.push_back({rotary.kinds[kind].dims, rotary.kinds[kind].interleaved, kind});
    }
    return layers;
}

bool gains(const CompileOptions& options) {
    return options.on_cpu && detected_isa() != Isa::scalar && !options.asks_openvino_cache &&
           options.cache_format;
}

/// Batch invariance leaves nothing to the number of rows.
kernels::ActivationPrecision activations_of(const CompileOptions& options) {
    const bool free = options.activations == kernels::ActivationPrecision::automatic;
    return options.batch_invariant && free ? kernels::ActivationPrecision::int16
                                           : options.activations;
}

}  // namespace

NativeAttentionReport choose_attention(const std::shared_ptr<ov::Model>& model,
                                       const ModelConfig& config, const CompileOptions& options) {
    if (options.attention == Backend::OPENVINO) return {};
    const bool asked = options.attention == Backend::NATIVE;
    const bool capped = !asked && options.on_cpu && config.attention_soft_cap > 0;
    const bool needed = asked || options.evicts || capped || options.batch_invariant;
    if (!needed && !gains(options)) return {};
    check_argument(options.on_cpu,
                   options.evicts            ? "cache eviction"
                   : options.batch_invariant ? "batch_invariant"
                                             : "attention_backend 'native'",
                   " runs on CPU, not ", options.device);
    check_argument(options.cache_format.has_value(), options.cache_refusal);

    NativeAttentionOptions native;
    native.format = *options.cache_format;
    native.rotary = layer_rotary(config.rotary);
    native.sliding_windows = config.sliding_windows;
    native.soft_cap = config.attention_soft_cap;
    native.batch_invariant = options.batch_invariant;
    native.all_or_none = true;
    NativeAttentionReport report = use_native_attention(model, native);
    std::string left;
    for (const std::string& sentence : report.left) left += "\n  " + sentence;
    check_argument(!needed || left.empty(),
                   options.evicts            ? "use_cache_eviction is true"
                   : options.batch_invariant ? "batch_invariant is true"
                   : capped                  ? "the model caps attention logits"
                                             : "attention_backend is 'native'",
                   ", but:", left);
    return report;
}

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
    const size_t experts = use_routed_experts(model, activations_of(options));
    QuantizedLinearReport report = use_quantized_linear(model, activations_of(options));
    check_argument(!asked || experts + report.num_matrices > 0,
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
