#include "graph/token_layout.hpp"

#include <algorithm>
#include <utility>

#include "graph/node_queries.hpp"
#include "graph/token_rules.hpp"
#include "model/port_names.hpp"
#include "openvino/op/parameter.hpp"

namespace pagewheel {
namespace {

/// The batch's tokens, positions and hidden states lie along the only dimension that is dynamic.
TokenValue value_of_input(const ov::op::v0::Parameter& parameter) {
    const auto& names = parameter.get_output_tensor(0).get_names();
    const auto is_any = [&](auto... known) { return (names.count(known) + ...) > 0; };
    if (!is_any(ports::input_ids, ports::position_ids, ports::hidden_states)) return {};
    const ov::PartialShape& shape = parameter.get_partial_shape();
    if (shape.rank().is_dynamic()) return {};
    Extents extents;
    for (const ov::Dimension& dimension : shape)
        extents.push_back(dimension.is_dynamic() ? Extent{1, true}
                                                 : Extent{dimension.get_length()});
    return rows_of(std::move(extents));
}

}  // namespace

size_t num_token_extents(const Extents& extents) {
    return size_t(std::count_if(extents.begin(), extents.end(),
                                [](const Extent& extent) { return extent.tokens; }));
}

size_t token_axis(const Extents& extents) {
    return size_t(std::find_if(extents.begin(), extents.end(),
                               [](const Extent& extent) { return extent.tokens; }) -
                  extents.begin());
}

TokenValue rows_of(Extents extents) {
    using Kind = TokenValue::Kind;
    const size_t tokens = num_token_extents(extents);
    if (tokens > 1) return {};
    return {tokens == 1 ? Kind::ROWS : Kind::CONSTANT, std::move(extents)};
}

TokenValue rows_of(MaybeExtents extents) {
    return extents ? rows_of(std::move(*extents)) : TokenValue();
}

MaybeExtents TokenReader::extents(size_t input) const {
    const TokenValue& known = value(input);
    if (known.is_rows()) return known.extents;
    const ov::PartialShape& shape = m_node.get_input_partial_shape(input);
    if (known.kind != TokenValue::Kind::CONSTANT || shape.is_dynamic()) return {};
    Extents extents;
    for (const ov::Dimension& dimension : shape) extents.push_back({dimension.get_length()});
    return extents;
}

MaybeExtents TokenReader::shape(size_t input) const {
    const TokenValue& known = value(input);
    if (known.kind == TokenValue::Kind::SHAPE) {
        if (known.extents.size() > max_lengths) return {};
        return known.extents;
    }
    const auto constant = integers_under(m_node.input_value(input));
    if (!constant || ov::shape_size(constant->get_shape()) > max_lengths) return {};
    Extents elements;
    for (const int64_t each : constant->cast_vector<int64_t>()) elements.push_back({each});
    return elements;
}

std::optional<std::vector<int64_t>> TokenReader::integers(size_t input) const {
    const MaybeExtents elements = shape(input);
    if (!elements || num_token_extents(*elements) > 0) return {};
    std::vector<int64_t> integers;
    for (const Extent& each : *elements) integers.push_back(each.size);
    return integers;
}

std::optional<std::vector<size_t>> TokenReader::axes(size_t input, size_t rank) const {
    const auto listed = integers(input);
    if (!listed) return {};
    std::vector<size_t> axes;
    for (const int64_t axis : *listed) {
        const int64_t counted = axis < 0 ? axis + int64_t(rank) : axis;
        if (counted < 0 || counted >= int64_t(rank)) return {};
        axes.push_back(size_t(counted));
    }
    return axes;
}

std::optional<Extent> TokenReader::static_extent(size_t output, size_t axis) const {
    const ov::PartialShape& shape = m_node.get_output_partial_shape(output);
    if (shape.rank().is_dynamic() || axis >= shape.size() || shape[axis].is_dynamic()) return {};
    return Extent{shape[axis].get_length()};
}

size_t TokenValue::axis() const {
    return token_axis(extents);
}

bool TokenValue::counts_tokens() const {
    return kind == Kind::SHAPE && num_token_extents(extents) > 0;
}

TokenLayouts::TokenLayouts(const ov::Model& model) {
    for (const auto& node : model.get_ordered_ops()) {
        const auto* parameter = ov::as_type<const ov::op::v0::Parameter>(node.get());
        const TokenReader reader(*node, m_values);
        for (const auto& output : node->outputs())
            m_values[output] = parameter ? value_of_input(*parameter)
                                         : apply_token_rule(reader, output.get_index());
    }
}

const TokenValue& TokenLayouts::of(const ov::Output<ov::Node>& output) const {
    static const TokenValue unknown;
    const auto found = m_values.find(output);
    return found == m_values.end() ? unknown : found->second;
}

}  // namespace pagewheel
