#include "graph/gather_rows.hpp"

#include <algorithm>

#include "graph/node_queries.hpp"
#include "graph/port_names.hpp"
#include "openvino/op/gather.hpp"
#include "ops/gather_rows.hpp"

namespace pagewheel {
namespace {

/// f32 [rows, 1, ..., width]
bool has_plain_rows(const ov::Output<ov::Node>& output) {
    const ov::PartialShape& shape = output.get_partial_shape();
    return output.get_element_type() == ov::element::f32 && shape.rank().is_static() &&
           shape.size() > 1 && shape[shape.size() - 1].is_static() &&
           std::all_of(shape.begin() + 1, shape.end() - 1,
                       [](const ov::Dimension& dimension) { return dimension == 1; });
}

/// Alone, a node of pagewheel's costs the plugin more than its own Gather does.
bool feeds_native_operation(const ov::Output<ov::Node>& rows) {
    const auto readers = rows.get_target_inputs();
    return std::any_of(readers.begin(), readers.end(), [](const ov::Input<ov::Node>& reader) {
        const auto* native = dynamic_cast<const NativeOp*>(reader.get_node());
        return native && reader.get_index() < native->num_row_inputs();
    });
}

}  // namespace

size_t use_gather_rows(const std::shared_ptr<ov::Model>& model) {
    size_t replaced = 0;
    for (const auto& node : model->get_ordered_ops()) {
        if (!ov::is_type<ov::op::v8::Gather>(node) || !has_plain_rows(node->input_value(0)) ||
            scalar(node->input_value(2)) != 0.0f || !feeds_native_operation(node->output(0)))
            continue;
        const std::string& rows = node->get_input_node_ptr(1)->get_friendly_name();
        if (rows != ports::logits_indices && rows != ports::sampled_tokens_indices) continue;
        replace_with(node, std::make_shared<GatherRows>(
                               ov::OutputVector{node->input_value(0), node->input_value(1)}));
        ++replaced;
    }
    return replaced;
}

}  // namespace pagewheel
