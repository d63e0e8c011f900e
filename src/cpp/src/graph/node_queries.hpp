// Small questions that passes ask of nodes.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "model/port_names.hpp"
#include "openvino/core/model.hpp"
#include "openvino/core/node.hpp"
#include "openvino/op/constant.hpp"
#include "openvino/op/convert.hpp"
#include "openvino/op/parameter.hpp"
#include "openvino/op/reshape.hpp"
#include "openvino/op/squeeze.hpp"
#include "openvino/op/transpose.hpp"
#include "openvino/op/unsqueeze.hpp"
#include "ops/native_op.hpp"

namespace pagewheel {

/// Whether the node is pagewheel's and keeps a state for each sequence.
inline bool keeps_state(const ov::Node& node) {
    const auto* native = dynamic_cast<const NativeOp*>(&node);
    return native && native->keeps_state();
}

inline std::shared_ptr<ov::Node> without_converts(std::shared_ptr<ov::Node> node) {
    while (ov::is_type<ov::op::v0::Convert>(node)) node = node->get_input_node_shared_ptr(0);
    return node;
}

/// The node behind Converts between i32 and i64 alone, which leave lengths and indices as they
/// are, and not many of them.
inline std::shared_ptr<ov::Node> without_integer_converts(std::shared_ptr<ov::Node> node) {
    constexpr int most = 4;
    const auto is_integer = [](const ov::element::Type& type) {
        return type == ov::element::i32 || type == ov::element::i64;
    };
    for (int i = 0; i < most && ov::is_type<ov::op::v0::Convert>(node); ++i) {
        if (!is_integer(node->get_input_element_type(0)) ||
            !is_integer(node->get_output_element_type(0)))
            break;
        node = node->get_input_node_shared_ptr(0);
    }
    return node;
}

/// The constant of whole numbers that `output` is, in i32 or i64; null if it is none.
inline std::shared_ptr<ov::op::v0::Constant> integers_under(const ov::Output<ov::Node>& output) {
    auto constant = ov::as_type_ptr<ov::op::v0::Constant>(
        without_integer_converts(output.get_node_shared_ptr()));
    const bool whole = constant && constant->get_element_type().is_integral_number();
    return whole ? constant : nullptr;
}

/// The constant, converted or not, that `output` is; null if it is none.
inline std::shared_ptr<ov::op::v0::Constant> constant_under(const ov::Output<ov::Node>& output) {
    return ov::as_type_ptr<ov::op::v0::Constant>(without_converts(output.get_node_shared_ptr()));
}

/// The value of a constant of one element.
inline std::optional<float> scalar(const ov::Output<ov::Node>& output) {
    const auto constant = constant_under(output);
    if (!constant || ov::shape_size(constant->get_shape()) != 1) return {};
    return constant->cast_vector<float>()[0];
}

/// The node of this kind that gives the value; null if it is another.
template <class Op>
std::shared_ptr<Op> as(const ov::Output<ov::Node>& value) {
    return ov::as_type_ptr<Op>(value.get_node_shared_ptr());
}

/// Of the inputs of a sum or product, the one that `known` gives something for, and the other.
template <class Op, class Known>
auto split_operands(const ov::Output<ov::Node>& value, const Known& known)
    -> std::optional<std::pair<typename decltype(known(value))::value_type, ov::Output<ov::Node>>> {
    const auto node = as<Op>(value);
    if (!node) return {};
    for (const size_t i : {0, 1})
        if (auto found = known(node->input_value(i)))
            return std::make_pair(std::move(*found), node->input_value(1 - i));
    return {};
}

inline ov::Output<ov::Node> as_f32(const ov::Output<ov::Node>& output) {
    if (output.get_element_type() == ov::element::f32) return output;
    return std::make_shared<ov::op::v0::Convert>(output, ov::element::f32);
}

inline ov::Output<ov::Node> reshaped_to(const ov::Output<ov::Node>& value,
                                        const std::vector<int64_t>& shape) {
    const auto pattern = ov::op::v0::Constant::create(ov::element::i64, {shape.size()}, shape);
    return std::make_shared<ov::op::v1::Reshape>(value, pattern, /*special_zero=*/false);
}

/// What is reshaped, squeezed or unsqueezed to `value`.
inline ov::Output<ov::Node> without_reshapes(ov::Output<ov::Node> value) {
    while (ov::is_type<ov::op::v1::Reshape>(value.get_node()) ||
           ov::is_type<ov::op::v0::Unsqueeze>(value.get_node()) ||
           ov::is_type<ov::op::v0::Squeeze>(value.get_node()))
        value = value.get_node()->input_value(0);
    return value;
}

/// Whether a Transpose leaves elements in their order: all it moves has size 1.
inline bool moves_nothing(const ov::Node& transpose) {
    const ov::PartialShape& shape = transpose.get_input_partial_shape(0);
    const auto constant = constant_under(transpose.input_value(1));
    if (!constant || shape.rank().is_dynamic()) return false;
    auto order = constant->cast_vector<int64_t>();
    if (order.size() != shape.size()) return false;
    order.erase(std::remove_if(order.begin(), order.end(),
                               [&](int64_t d) { return shape[size_t(d)] == 1; }),
                order.end());
    return std::is_sorted(order.begin(), order.end());
}

/// Whether the node gives its first input's elements, in their order.
inline bool is_view(const ov::Node& node) {
    return ov::is_type<ov::op::v1::Reshape>(&node) || ov::is_type<ov::op::v0::Squeeze>(&node) ||
           ov::is_type<ov::op::v0::Unsqueeze>(&node) ||
           (ov::is_type<ov::op::v1::Transpose>(&node) && moves_nothing(node));
}

/// The size of the last dimension; 0 if it is not known.
inline size_t row_width(const ov::PartialShape& shape) {
    if (shape.rank().is_dynamic() || shape.size() == 0 || shape[shape.size() - 1].is_dynamic())
        return 0;
    return size_t(shape[shape.size() - 1].get_length());
}

/// `value` as rows [tokens, width].
inline ov::Output<ov::Node> as_rows(const ov::Output<ov::Node>& value) {
    const ov::PartialShape& shape = value.get_partial_shape();
    return shape.size() == 2 ? value : reshaped_to(value, {-1, int64_t(row_width(shape))});
}

/// What `value` has the elements of, in their order.
inline ov::Output<ov::Node> without_views(ov::Output<ov::Node> value) {
    while (is_view(*value.get_node())) value = value.get_node()->input_value(0);
    return value;
}

/// The values of a constant of whole numbers.
inline std::optional<std::vector<int64_t>> integers(const ov::Output<ov::Node>& value) {
    const auto constant = integers_under(value);
    if (!constant) return {};
    return constant->cast_vector<int64_t>();
}

/// Whether the node is a Transpose that swaps dimensions 1 and 2 of 4.
inline bool swaps_middle(const std::shared_ptr<ov::Node>& node) {
    return ov::is_type<ov::op::v1::Transpose>(node) &&
           integers(node->input_value(1)) == std::vector<int64_t>{0, 2, 1, 3};
}

/// Whether `value` is the number `axis` alone, counted from either end.
inline bool is_axis(const ov::Output<ov::Node>& value, int64_t axis, size_t rank) {
    const auto axes = integers(value);
    return axes && axes->size() == 1 && ((*axes)[0] == axis || (*axes)[0] + int64_t(rank) == axis);
}

inline bool has_one_reader(const ov::Output<ov::Node>& output) {
    return output.get_target_inputs().size() == 1;
}

/// The node that alone reads `output`; null if there are others.
inline std::shared_ptr<ov::Node> only_reader(const ov::Output<ov::Node>& output) {
    if (!has_one_reader(output)) return nullptr;
    return output.get_target_inputs().begin()->get_node()->shared_from_this();
}

/// The last view of `value`, each the only reader of the one before, that anything else reads.
inline ov::Output<ov::Node> through_views(ov::Output<ov::Node> value) {
    for (auto reader = only_reader(value); reader && is_view(*reader); reader = only_reader(value))
        value = reader->output(0);
    return value;
}

/// Calls visit() with each node of a kind, in the model's order. Returns how often it gave true.
template <class Op, class Visit>
size_t count_each(const ov::Model& model, const Visit& visit) {
    size_t count = 0;
    for (const auto& node : model.get_ordered_ops())
        if (const auto op = ov::as_type_ptr<Op>(node)) count += size_t(visit(op));
    return count;
}

/// The input of a Reshape that says what shape there will be.
inline constexpr size_t reshape_pattern = 1;

/// A new input of the model.
inline ov::Output<ov::Node> add_parameter(ov::Model& model, const std::string& name,
                                          const ov::element::Type& type,
                                          const ov::PartialShape& shape) {
    const auto parameter = std::make_shared<ov::op::v0::Parameter>(type, shape);
    parameter->set_friendly_name(name);
    parameter->get_output_tensor(0).set_names({name});
    model.add_parameters({parameter});
    return parameter;
}

/// The Gather of gather_logits().
inline ov::Node& gather_of_logits(const ov::Model& model) {
    for (const auto& parameter : model.get_parameters())
        if (parameter->get_friendly_name() == ports::sampled_tokens_indices)
            return *parameter->output(0).get_target_inputs().begin()->get_node();
    throw std::logic_error("the model's logits are not gathered");
}

/// Puts `fresh` in the place of `old`, output by output.
inline void replace_with(const std::shared_ptr<ov::Node>& old,
                         const std::shared_ptr<ov::Node>& fresh) {
    fresh->set_friendly_name(old->get_friendly_name());
    for (size_t i = 0; i < old->get_output_size(); ++i) old->output(i).replace(fresh->output(i));
}

}  // namespace pagewheel
