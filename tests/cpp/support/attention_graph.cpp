#include "support/attention_graph.hpp"

#include <cmath>
#include <string>

#include "base/check.hpp"
#include "graph/passes.hpp"
#include "openvino/op/util/variable.hpp"
#include "openvino/opsets/opset13.hpp"

namespace pagewheel {
namespace {

using namespace ov::opset13;
using Output = ov::Output<ov::Node>;

Output integers(const std::vector<int64_t>& values) {
    return Constant::create(ov::element::i64, {values.size()}, values);
}

Output integer(int64_t value) {
    return Constant::create(ov::element::i64, {}, {value});
}

std::shared_ptr<Parameter> parameter(const std::string& name, const ov::element::Type& type,
                                     const ov::PartialShape& shape) {
    auto node = std::make_shared<Parameter>(type, shape);
    node->set_friendly_name(name);
    node->output(0).get_tensor().set_names({name});
    return node;
}

/// One model under construction.
class StatefulAttention {
public:
    explicit StatefulAttention(const AttentionShape& shape) : m_shape(shape) {}

    std::shared_ptr<ov::Model> build() {
        const auto d = int64_t(m_shape.head_size), heads = int64_t(m_shape.heads),
                   kv_heads = int64_t(m_shape.kv_heads);
        const auto split = std::make_shared<VariadicSplit>(
            m_embeds, integer(2), integers({heads * d, kv_heads * d, kv_heads * d}));
        const Output key = repeat(through_cache(by_head(split->output(1), kv_heads), "key"));
        const Output value = repeat(through_cache(by_head(split->output(2), kv_heads), "value"));
        const Output scale =
            Constant::create(ov::element::f32, {}, {1 / std::sqrt(float(m_shape.head_size))});
        const auto attention = std::make_shared<ScaledDotProductAttention>(
            by_head(split->output(0), heads), key, value, causal_mask(), scale, false);
        const auto merged = std::make_shared<Reshape>(
            std::make_shared<Transpose>(attention, integers({0, 2, 1, 3})),
            integers({0, 0, heads * d}), true);
        const auto result = std::make_shared<Result>(merged);
        result->output(0).get_tensor().set_names({"logits"});
        return std::make_shared<ov::Model>(
            ov::ResultVector{result}, m_assigns,
            ov::ParameterVector{m_embeds, m_mask, m_positions, m_beams});
    }

private:
    /// [batch, tokens, n * d] -> [batch, n, tokens, d].
    Output by_head(const Output& x, int64_t n) const {
        const auto split =
            std::make_shared<Reshape>(x, integers({0, 0, n, int64_t(m_shape.head_size)}), true);
        return std::make_shared<Transpose>(split, integers({0, 2, 1, 3}));
    }

    Output batch() const {
        return std::make_shared<Gather>(std::make_shared<ShapeOf>(m_embeds), integers({0}),
                                        integer(0));
    }

    /// Appends to the layer's state and returns all of it.
    Output through_cache(const Output& current, const std::string& kind) {
        const auto kv_heads = int64_t(m_shape.kv_heads), d = int64_t(m_shape.head_size);
        const auto variable = std::make_shared<ov::op::util::Variable>(
            ov::op::util::VariableInfo{{-1, kv_heads, -1, d},
                                       ov::element::f32,
                                       "past_key_values.0." + kind + "present.0." + kind});
        const auto empty = std::make_shared<Broadcast>(
            Constant::create(ov::element::f32, {}, {0.0f}),
            std::make_shared<Concat>(
                ov::OutputVector{batch(), integers({kv_heads}), integers({0}), integers({d})}, 0));
        const auto past = std::make_shared<ReadValue>(empty, variable);
        const auto ordered = std::make_shared<Gather>(past, m_beams, integer(0));
        const auto whole = std::make_shared<Concat>(ov::OutputVector{ordered, current}, 2);
        m_assigns.push_back(std::make_shared<Assign>(whole, variable));
        return whole;
    }

    /// [batch, kv_heads, tokens, d] -> [batch, heads, tokens, d].
    Output repeat(const Output& x) const {
        const auto heads = int64_t(m_shape.heads), kv_heads = int64_t(m_shape.kv_heads);
        if (heads == kv_heads) return x;
        const auto spread = std::make_shared<Broadcast>(std::make_shared<Unsqueeze>(x, integer(2)),
                                                        integers({1, 1, heads / kv_heads, 1, 1}),
                                                        ov::op::BroadcastType::BIDIRECTIONAL);
        return std::make_shared<Reshape>(
            spread, integers({0, heads, -1, int64_t(m_shape.head_size)}), true);
    }

    Output causal_mask() const {
        const auto length = [](const Output& x) {
            return std::make_shared<Gather>(std::make_shared<ShapeOf>(x), integer(1), integer(0));
        };
        const auto tokens = length(m_embeds), total = length(m_mask);
        const auto columns =
            std::make_shared<Range>(integer(0), total, integer(1), ov::element::i64);
        const auto rows = std::make_shared<Range>(std::make_shared<Subtract>(total, tokens), total,
                                                  integer(1), ov::element::i64);
        const auto seen =
            std::make_shared<LessEqual>(columns, std::make_shared<Unsqueeze>(rows, integer(1)));
        const auto present = std::make_shared<Unsqueeze>(
            std::make_shared<Convert>(m_mask, ov::element::boolean), integers({1, 2}));
        const auto visible = std::make_shared<LogicalAnd>(
            std::make_shared<Unsqueeze>(seen, integers({0, 1})), present);
        return std::make_shared<Select>(visible, Constant::create(ov::element::f32, {}, {0.0f}),
                                        Constant::create(ov::element::f32, {}, {-65504.0f}));
    }

    AttentionShape m_shape;
    std::shared_ptr<Parameter> m_embeds =
        parameter("inputs_embeds", ov::element::f32,
                  {-1, -1, int64_t((m_shape.heads + 2 * m_shape.kv_heads) * m_shape.head_size)});
    std::shared_ptr<Parameter> m_mask = parameter("attention_mask", ov::element::i64, {-1, -1});
    std::shared_ptr<Parameter> m_positions = parameter("position_ids", ov::element::i64, {-1, -1});
    std::shared_ptr<Parameter> m_beams = parameter("beam_idx", ov::element::i32, {-1});
    ov::SinkVector m_assigns;
};

std::shared_ptr<ov::Node> paged_node(const ov::Model& model) {
    for (const auto& node : model.get_ordered_ops())
        if (std::string(node->get_type_name()) == "PagedAttentionExtension") return node;
    throw std::runtime_error("SDPAToPagedAttention left no PagedAttentionExtension");
}

}  // namespace

std::shared_ptr<ov::Model> stateful_attention(const AttentionShape& shape) {
    return StatefulAttention(shape).build();
}

std::shared_ptr<ov::Model> openvino_paged_attention(const AttentionShape& shape, size_t layers,
                                                    const ov::element::Type& type) {
    const auto model = stateful_attention(shape);
    apply_paged_attention(model);
    const auto node = paged_node(*model);

    ov::ParameterVector parameters;
    ov::OutputVector inputs = node->input_values();
    const auto d = int64_t(shape.head_size);
    const size_t widths[] = {shape.heads, shape.kv_heads, shape.kv_heads};
    const char* names[] = {"query", "key", "value"};
    for (size_t i = 0; i < 3; ++i) {
        parameters.push_back(parameter(names[i], type, {-1, int64_t(widths[i]) * d}));
        inputs[i] = parameters.back();
    }
    constexpr size_t first_cache = 3, num_caches = 2;
    for (size_t i = first_cache + num_caches; i < inputs.size(); ++i)
        if (auto metadata = ov::as_type_ptr<Parameter>(inputs[i].get_node_shared_ptr()))
            parameters.push_back(metadata);
    for (size_t layer = 0; layer < layers; ++layer) {
        for (size_t i = first_cache; i < first_cache + num_caches; ++i) {
            const auto& cache = *ov::as_type<Parameter>(node->get_input_node_ptr(i));
            parameters.push_back(parameter(
                (i == first_cache ? "key_cache." : "value_cache.") + std::to_string(layer),
                cache.get_element_type(), cache.get_partial_shape()));
            inputs[i] = parameters.back();
        }
        const auto clone = node->clone_with_new_inputs(inputs);
        clone->get_rt_info() = node->get_rt_info();
        clone->set_friendly_name("attention." + std::to_string(layer));
        inputs[0] = clone->output(0);
    }
    const auto result = std::make_shared<Result>(inputs[0]);
    result->output(0).get_tensor().set_names({"attention"});
    return std::make_shared<ov::Model>(ov::ResultVector{result}, parameters);
}

}  // namespace pagewheel
