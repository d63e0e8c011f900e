#include "graph/state_operations.hpp"

#include <string>
#include <unordered_map>
#include <vector>

#include "base/check.hpp"
#include "graph/node_queries.hpp"
#include "model/graph_file.hpp"
#include "openvino/op/exp.hpp"
#include "openvino/op/loop.hpp"
#include "openvino/op/parameter.hpp"
#include "openvino/op/reduce_sum.hpp"
#include "openvino/op/squeeze.hpp"
#include "openvino/op/transpose.hpp"
#include "ops/state_ops.hpp"

namespace pagewheel {
namespace {

/// Inputs of OpenVINO's PagedCausalConv1D.
namespace convolution_input {
enum : size_t { tokens = 0, states = 1, weights = 2, bias = 3 };
}  // namespace convolution_input

StateOperation short_convolution(const std::shared_ptr<ov::Node>& node,
                                 const NativeAttentionOptions&) {
    const auto weights =
        constant_under(without_reshapes(node->input_value(convolution_input::weights)));
    if (!weights) throw NotServed("its weights are no constant");
    const ov::PartialShape& shape = node->get_input_partial_shape(convolution_input::weights);
    if (shape.size() != 3 || shape.is_dynamic() || shape[1] != 1)
        throw NotServed(concat("its weights have shape ", shape));
    kernels::ShortConvolutionConfig config;
    config.channels = size_t(shape[0].get_length());
    config.length = size_t(shape[2].get_length());
    const auto values = weights->cast_vector<float>();
    config.weights.resize(values.size());
    for (size_t channel = 0; channel < config.channels; ++channel)
        for (size_t tap = 0; tap < config.length; ++tap)
            config.weights[tap * config.channels + channel] = values[channel * config.length + tap];
    config.bias = constant_at(*node, convolution_input::bias)->cast_vector<float>();
    check_served(config);
    const auto shared = std::make_shared<const kernels::ShortConvolutionConfig>(std::move(config));
    return {convolution_input::states, shared->state_bytes(),
            [=](const ov::Output<ov::Node>& states, const ov::Output<ov::Node>& tables) {
                const auto tokens = as_f32(node->input_value(convolution_input::tokens));
                const auto native = std::make_shared<ShortConvolution>(
                    ov::OutputVector{tokens, states, tables}, shared);
                native->set_friendly_name(node->get_friendly_name());
                return native->output(0);
            }};
}

/// Inputs of OpenVINO's PagedGatedDeltaNet.
namespace delta_input {
enum : size_t { queries = 0, keys = 1, values = 2, states = 3, decays = 4, betas = 5 };
}  // namespace delta_input

/// Marks the ReduceSum that sum_channel_decays() writes.
constexpr const char* channel_decays_key = "pagewheel_channel_decays";

/// The decays [batch, tokens, heads, key size] whose sums a rule reads; null if a head has one.
ov::Output<ov::Node> channel_decays(const ov::Output<ov::Node>& decays) {
    const auto sum = as<ov::op::v1::ReduceSum>(without_views(decays));
    if (!sum || sum->get_rt_info().count(channel_decays_key) == 0) return {};
    return sum->input_value(0);
}

/// What takes the tokens' dimension from a parameter of a loop's body before an exponential.
std::shared_ptr<ov::op::v0::Squeeze> squeezed_decays(const ov::Model& body) {
    for (const auto& node : body.get_ops()) {
        if (!ov::is_type<ov::op::v0::Exp>(node)) continue;
        const auto squeeze = as<ov::op::v0::Squeeze>(node->input_value(0));
        if (squeeze && squeeze->get_input_size() == 2 &&
            as<ov::op::v0::Parameter>(squeeze->input_value(0)) &&
            integers(squeeze->input_value(1)) == std::vector<int64_t>{2})
            return squeeze;
    }
    return nullptr;
}

/// What takes the place of a PagedGatedDeltaNet's output, [tokens, heads, size]. OpenVINO gives it
/// back the dimensions of its batch by a Reshape with the number of key heads, of which there may
/// be fewer: so that goes too.
ov::Output<ov::Node> heads_of(const ov::Output<ov::Node>& rows,
                              const std::shared_ptr<ov::Node>& node, size_t heads, size_t size) {
    const auto reader = only_reader(node->output(0));
    if (ov::is_type<ov::op::v1::Reshape>(reader) &&
        reader->get_output_partial_shape(0).size() == 4) {
        const bool first = reader->get_output_partial_shape(0)[0].is_dynamic();
        reader->output(0).replace(
            reshaped_to(rows, {first ? -1 : 1, first ? 1 : -1, int64_t(heads), int64_t(size)}));
    }
    return reshaped_to(rows, {-1, int64_t(heads), int64_t(size)});
}

StateOperation gated_delta_rule(const std::shared_ptr<ov::Node>& node,
                                const NativeAttentionOptions& options) {
    kernels::GatedDeltaRuleConfig config;
    config.key_heads = dimension_at(*node, delta_input::keys, 3, 1);
    config.key_size = dimension_at(*node, delta_input::keys, 3, 2);
    config.value_heads = dimension_at(*node, delta_input::values, 3, 1);
    config.value_size = dimension_at(*node, delta_input::values, 3, 2);
    if (find_attribute<bool>(*node, "use_qk_l2norm").value_or(false)) {
        config.query_epsilon = float(find_attribute<double>(*node, "q_l2_norm_eps").value_or(0));
        config.key_epsilon = float(find_attribute<double>(*node, "k_l2_norm_eps").value_or(0));
    }
    config.batch_invariant = options.batch_invariant;
    const auto by_channel = channel_decays(node->input_value(delta_input::decays));
    config.decay_by_channel = by_channel.get_node() != nullptr;
    check_served(config);
    const auto shared = std::make_shared<const kernels::GatedDeltaRuleConfig>(std::move(config));
    return {delta_input::states, shared->state_bytes(),
            [=](const ov::Output<ov::Node>& states, const ov::Output<ov::Node>& tables) {
                // Shapes on the way, which OpenVINO's pass computes, say nothing more.
                const auto rows = [&](size_t input, size_t width) {
                    ov::Output<ov::Node> value = node->input_value(input);
                    if (input == delta_input::decays && shared->decay_by_channel)
                        value = by_channel;
                    const ov::Output<ov::Node> source = without_views(value);
                    if (row_width(source.get_partial_shape()) == width) value = source;
                    return reshaped_to(as_f32(value), {-1, int64_t(width)});
                };
                const ov::OutputVector inputs{rows(delta_input::queries, shared->key_width()),
                                              rows(delta_input::keys, shared->key_width()),
                                              rows(delta_input::values, shared->value_width()),
                                              rows(delta_input::decays, shared->decay_width()),
                                              rows(delta_input::betas, shared->value_heads),
                                              states,
                                              tables};
                const auto native = std::make_shared<GatedDeltaRule>(inputs, shared);
                native->set_friendly_name(node->get_friendly_name());
                return heads_of(native, node, shared->value_heads, shared->value_size);
            }};
}

}  // namespace

void sum_channel_decays(ov::Model& model) {
    using ov::op::v0::Constant;
    for (const auto& node : model.get_ordered_ops()) {
        const auto loop = ov::as_type_ptr<ov::op::v5::Loop>(node);
        const auto squeeze = loop ? squeezed_decays(*loop->get_function()) : nullptr;
        if (!squeeze) continue;
        const auto inside = as<ov::op::v0::Parameter>(squeeze->input_value(0));
        const auto index = size_t(loop->get_function()->get_parameter_index(inside));
        for (const auto& description : loop->get_input_descriptions()) {
            const auto transpose = loop->get_input_node_shared_ptr(description->m_input_index);
            if (description->m_body_parameter_index != index || !swaps_middle(transpose)) continue;
            const auto sum = std::make_shared<ov::op::v1::ReduceSum>(
                transpose->input_value(0), Constant::create(ov::element::i64, {1}, {3}), false);
            sum->get_rt_info()[channel_decays_key] = true;
            const auto order = Constant::create(ov::element::i64, {3}, {0, 2, 1});
            const auto heads_first = std::make_shared<ov::op::v1::Transpose>(sum, order);
            squeeze->output(0).replace(inside->output(0));
            inside->set_partial_shape({-1, -1, 1});
            loop->input(description->m_input_index).replace_source_output(heads_first);
        }
        loop->validate_and_infer_types();
    }
}

std::shared_ptr<ov::op::v0::Constant> constant_at(const ov::Node& node, size_t input) {
    auto constant = ov::as_type_ptr<ov::op::v0::Constant>(node.get_input_node_shared_ptr(input));
    if (!constant) throw NotServed(concat("its input ", input, " is no constant"));
    return constant;
}

size_t dimension_at(const ov::Node& node, size_t input, size_t rank, size_t dimension) {
    const ov::PartialShape& shape = node.get_input_partial_shape(input);
    if (shape.rank().is_dynamic() || shape.size() != rank || shape[dimension].is_dynamic())
        throw NotServed(concat("its input ", input, " has shape ", shape));
    return size_t(shape[dimension].get_length());
}

StateOperation native_state_operation(const std::shared_ptr<ov::Node>& node,
                                      const NativeAttentionOptions& options) {
    using Make =
        StateOperation (*)(const std::shared_ptr<ov::Node>&, const NativeAttentionOptions&);
    static const std::unordered_map<std::string, Make> operations{
        {"PagedCausalConv1D", short_convolution},
        {"PagedGatedDeltaNet", gated_delta_rule},
        {"PagedSelectiveSSM", selective_ssm_operation},
    };
    const auto found = operations.find(node->get_type_name());
    if (found == operations.end())
        throw NotServed(concat("pagewheel has no ", node->get_type_name()));
    return found->second(node, options);
}

}  // namespace pagewheel
