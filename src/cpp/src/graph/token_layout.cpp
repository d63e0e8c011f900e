#include "graph/token_layout.hpp"

#include <utility>

#include "graph/port_names.hpp"
#include "graph/token_rules.hpp"
#include "openvino/op/parameter.hpp"

namespace pagewheel {
namespace {

/// The batch's tokens and their positions lie along the only dimension that is dynamic.
TokenValue value_of_input(const ov::op::v0::Parameter& parameter) {
    const auto& names = parameter.get_output_tensor(0).get_names();
    if (names.count(ports::input_ids) == 0 && names.count(ports::position_ids) == 0) return {};
    const ov::PartialShape& shape = parameter.get_partial_shape();
    if (shape.rank().is_dynamic()) return {};
    Extents extents;
    for (const ov::Dimension& dimension : shape)
        extents.push_back(dimension.is_dynamic() ? Extent{1, true}
                                                 : Extent{dimension.get_length()});
    return rows_of(std::move(extents));
}

}  // namespace

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
