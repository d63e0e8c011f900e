// Small questions that passes ask of nodes.
#pragma once

#include <memory>
#include <optional>

#include "openvino/core/node.hpp"
#include "openvino/op/constant.hpp"
#include "openvino/op/convert.hpp"

namespace pagewheel {

inline std::shared_ptr<ov::Node> without_converts(std::shared_ptr<ov::Node> node) {
    while (ov::is_type<ov::op::v0::Convert>(node)) node = node->get_input_node_shared_ptr(0);
    return node;
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

inline bool has_one_reader(const ov::Output<ov::Node>& output) {
    return output.get_target_inputs().size() == 1;
}

/// The node that alone reads `output`; null if there are others.
inline std::shared_ptr<ov::Node> only_reader(const ov::Output<ov::Node>& output) {
    if (!has_one_reader(output)) return nullptr;
    return output.get_target_inputs().begin()->get_node()->shared_from_this();
}

/// Puts `fresh` in the place of `old`, output by output.
inline void replace_with(const std::shared_ptr<ov::Node>& old,
                         const std::shared_ptr<ov::Node>& fresh) {
    fresh->set_friendly_name(old->get_friendly_name());
    for (size_t i = 0; i < old->get_output_size(); ++i) old->output(i).replace(fresh->output(i));
}

}  // namespace pagewheel
