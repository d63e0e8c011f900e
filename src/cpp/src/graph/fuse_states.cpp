#include "graph/passes.hpp"

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "graph/function_patterns.hpp"
#include "graph/node_queries.hpp"
#include "openvino/op/add.hpp"
#include "openvino/op/multiply.hpp"
#include "openvino/op/sigmoid.hpp"
#include "openvino/op/softplus.hpp"
#include "ops/state_ops.hpp"

namespace pagewheel {
namespace {

/// Puts rows into the place of `value`, which has their elements in another shape of one dynamic
/// dimension at most. False if it has more.
bool replace_by_view(ov::Output<ov::Node> value, const ov::Output<ov::Node>& rows) {
    std::vector<int64_t> shape;
    size_t dynamic = 0;
    for (const ov::Dimension& dimension : value.get_partial_shape()) {
        dynamic += dimension.is_dynamic();
        shape.push_back(dimension.is_dynamic() ? -1 : dimension.get_length());
    }
    if (dynamic > 1) return false;
    value.replace(reshaped_to(rows, shape));
    return true;
}

// ---- Short convolutions

bool fuse_silu(const std::shared_ptr<ShortConvolution>& node) {
    const ov::Output<ov::Node> seen = through_views(node->output(0));
    const auto reader = only_reader(seen);
    if (node->config().silu || !reader || silu_input(reader->output(0)) != seen) return false;
    auto config = std::make_shared<kernels::ShortConvolutionConfig>(node->config());
    config->silu = true;
    reader->output(0).replace(seen);
    replace_with(node, std::make_shared<ShortConvolution>(node->input_values(), config));
    return true;
}

// ---- Gated delta rules

/// What the rule's input is computed from, if it is a sigmoid, and what that is multiplied with.
std::optional<std::pair<float, ov::Output<ov::Node>>> logit_of(const ov::Output<ov::Node>& betas,
                                                               size_t heads) {
    ov::Output<ov::Node> value = without_views(betas);
    float scale = 1;
    if (const auto product = split_operands<ov::op::v1::Multiply>(value, scalar))
        std::tie(scale, value) = *product;
    if (!as<ov::op::v0::Sigmoid>(value) || row_width(value.get_partial_shape()) != heads) return {};
    return std::make_pair(scale, value.get_node()->input_value(0));
}

std::optional<std::vector<float>> constants_of(const ov::Output<ov::Node>& value, size_t count) {
    const auto constant = constant_under(value);
    if (!constant || ov::shape_size(constant->get_shape()) != count) return {};
    return constant->cast_vector<float>();
}

/// a, and what rate * softplus(a + bias) has besides.
struct Decay {
    ov::Output<ov::Node> a;
    std::vector<float> rates, bias;
};

std::optional<Decay> decay_of(const ov::Output<ov::Node>& decays,
                              const kernels::GatedDeltaRuleConfig& config) {
    const ov::Output<ov::Node> value = without_views(decays);
    const bool by_channel = config.decay_by_channel;
    const size_t width = by_channel ? config.key_size : config.value_heads;
    const auto product = split_operands<ov::op::v1::Multiply>(value, [&](const auto& rates) {
        // Rates of channels would have the same number.
        const bool fits = !by_channel || row_width(rates.get_partial_shape()) == 1;
        return fits ? constants_of(rates, config.value_heads) : std::nullopt;
    });
    if (!product || row_width(value.get_partial_shape()) != width) return {};
    const auto softplus = as<ov::op::v4::SoftPlus>(without_views(product->second));
    if (!softplus || row_width(softplus->get_output_partial_shape(0)) != config.decay_width())
        return {};
    const auto sum = split_operands<ov::op::v1::Add>(
        softplus->input_value(0),
        [&](const auto& bias) { return constants_of(bias, config.decay_width()); });
    if (!sum) return {};
    return Decay{sum->second, product->first, sum->first};
}

/// gamma * (y / rms(y)) * silu(z) of each head of the rule's output, or with sigmoid(z).
struct GatedNorm {
    ov::Output<ov::Node> output, z;
    RmsNorm norm;
    bool gate_is_sigmoid;
};

/// z, if `gate` is a function of it that a norm may have, and whether that is the sigmoid.
std::optional<std::pair<ov::Output<ov::Node>, bool>> gate_input(const ov::Output<ov::Node>& gate) {
    const ov::Output<ov::Node> value = without_views(gate), z = silu_input(value);
    if (z.get_node()) return std::make_pair(z, false);
    if (as<ov::op::v0::Sigmoid>(value))
        return std::make_pair(value.get_node()->input_value(0), true);
    return {};
}

std::optional<GatedNorm> gated_norm_of(const GatedDeltaRule& node) {
    const ov::Output<ov::Node> y = through_views(const_cast<GatedDeltaRule&>(node).output(0));
    for (const auto& input : y.get_target_inputs()) {
        const auto normed = only_reader(input.get_node()->output(0));
        const auto gated = normed ? only_reader(normed->output(0)) : nullptr;
        if (!gated || !ov::is_type<ov::op::v1::Multiply>(gated)) continue;
        const auto norm = find_norm(normed->output(0), node.config().value_size);
        if (!norm || norm->x != y) continue;
        const auto gate = split_operands<ov::op::v1::Multiply>(gated, gate_input);
        if (!gate || gate->second.get_node_shared_ptr() != normed) continue;
        const ov::Output<ov::Node> z = without_views(gate->first.first);
        if (row_width(z.get_partial_shape()) != node.config().value_width() ||
            z.get_element_type() != ov::element::f32)
            continue;
        return GatedNorm{through_views(gated->output(0)), z, norm->norm, gate->first.second};
    }
    return {};
}

bool fuse_rule(const std::shared_ptr<GatedDeltaRule>& node) {
    if (!node->config().decay_rates.empty() || node->config().beta_is_logit) return false;
    auto config = std::make_shared<kernels::GatedDeltaRuleConfig>(node->config());
    ov::OutputVector inputs = node->input_values();
    StateOp::Offsets offsets = node->offsets();
    bool changed = false;
    for (const size_t i : {GatedDeltaRule::queries, GatedDeltaRule::keys, GatedDeltaRule::values}) {
        const size_t width =
            i == GatedDeltaRule::values ? config->value_width() : config->key_width();
        const auto found = find_columns(inputs[i], width);
        if (!found || found->rows == without_views(inputs[i])) continue;  // not cut
        inputs[i] = as_rows(found->rows);
        offsets[i] = found->first;
        changed = true;
    }
    if (const auto logit = logit_of(inputs[GatedDeltaRule::betas], config->value_heads)) {
        inputs[GatedDeltaRule::betas] = as_rows(logit->second);
        config->beta_scale = logit->first;
        config->beta_is_logit = changed = true;
    }
    if (auto decay = decay_of(inputs[GatedDeltaRule::decays], *config)) {
        inputs[GatedDeltaRule::decays] = as_rows(decay->a);
        config->decay_rates = std::move(decay->rates);
        config->decay_bias = std::move(decay->bias);
        changed = true;
    }
    const auto gated = gated_norm_of(*node);
    if (gated) {
        inputs.insert(inputs.begin() + GatedDeltaRule::gates, as_rows(gated->z));
        config->norm_weight = *gated->norm.gamma;
        config->norm_epsilon = gated->norm.epsilon;
        config->gate_is_sigmoid = gated->gate_is_sigmoid;
    }
    if (!changed && !gated) return false;
    const auto fused = std::make_shared<GatedDeltaRule>(inputs, config, offsets);
    fused->set_friendly_name(node->get_friendly_name());
    if (gated && replace_by_view(gated->output, fused)) return true;
    if (!gated) node->output(0).replace(fused->output(0));
    return !gated;
}

}  // namespace

size_t fuse_states(const std::shared_ptr<ov::Model>& model) {
    size_t count = 0;
    for (const auto& node : model->get_ordered_ops()) {
        if (const auto convolution = ov::as_type_ptr<ShortConvolution>(node))
            count += fuse_silu(convolution);
        if (const auto rule = ov::as_type_ptr<GatedDeltaRule>(node)) count += fuse_rule(rule);
    }
    if (count > 0) model->validate_nodes_and_infer_types();
    return count;
}

}  // namespace pagewheel
