// Assignments to slices, as PyTorch exports them, without indices of elements.
#include <memory>
#include <utility>
#include <vector>

#include "graph/node_queries.hpp"
#include "graph/passes.hpp"
#include "graph/token_layout.hpp"
#include "graph/token_rules.hpp"
#include "openvino/op/concat.hpp"
#include "openvino/op/range.hpp"
#include "openvino/op/reduce_prod.hpp"
#include "openvino/op/reshape.hpp"
#include "openvino/op/scatter_nd_update.hpp"
#include "openvino/op/slice.hpp"
#include "openvino/op/util/shape_of_base.hpp"

namespace pagewheel {
namespace {

using ov::op::v0::Constant;
using Output = ov::Output<ov::Node>;

std::optional<int64_t> integer(const Output& output) {
    const auto constant = integers_under(output);
    if (!constant || ov::shape_size(constant->get_shape()) != 1) return {};
    return constant->cast_vector<int64_t>()[0];
}

/// What `output` is a Reshape of, by a constant pattern.
Output reshaped(const Output& output, const std::vector<int64_t>& pattern) {
    const ov::Node* node = output.get_node();
    if (!node || !ov::is_type<ov::op::v1::Reshape>(node)) return {};
    const auto constant = integers_under(node->input_value(1));
    const bool same = constant && constant->get_shape().size() == 1 &&
                      constant->cast_vector<int64_t>() == pattern;
    return same ? node->input_value(0) : Output();
}

/// What `output` is the shape of.
Output shape_source(const Output& output) {
    const auto node = without_integer_converts(output.get_node_shared_ptr());
    return ov::as_type_ptr<ov::op::util::ShapeOfBase>(node) ? node->input_value(0) : Output();
}

/// The source of the shape, if `output` numbers the elements of a tensor of that shape.
Output numbered(const Output& output) {
    const ov::Node* reshape = output.get_node();
    if (!ov::is_type<ov::op::v1::Reshape>(reshape)) return {};
    const auto range = without_integer_converts(reshape->get_input_node_shared_ptr(0));
    if (range->get_input_size() != 3 || integer(range->input_value(0)) != 0 ||
        integer(range->input_value(2)) != 1 ||
        (!ov::is_type<ov::op::v4::Range>(range) && !ov::is_type<ov::op::v0::Range>(range)))
        return {};
    const auto count = without_integer_converts(range->get_input_node_shared_ptr(1));
    if (!ov::is_type<ov::op::v1::ReduceProd>(count)) return {};
    const Output source = shape_source(count->input_value(0));
    return source == shape_source(reshape->input_value(1)) ? source : Output();
}

/// Elements [begin, end) along one dimension, one after the other.
bool read_bounds(const ov::Node& slice, SliceAssign& assign) {
    if (!ov::is_type<ov::op::v8::Slice>(&slice) || slice.get_input_size() != 5) return false;
    const auto begin = integer(slice.input_value(1)), end = integer(slice.input_value(2)),
               step = integer(slice.input_value(3)), axis = integer(slice.input_value(4));
    if (!begin || !end || step != 1 || !axis || *begin < 0 || *end <= *begin || *axis < 0)
        return false;
    assign.begin = *begin;
    assign.end = *end;
    assign.axis = size_t(*axis);
    return true;
}

/// Whether a scatter's updates take the places of what was there.
bool overwrites(const ov::Node& scatter) {
    using Reducing = ov::op::v15::ScatterNDUpdate;
    if (const auto* reducing = ov::as_type<const Reducing>(&scatter))
        return reducing->get_reduction() == Reducing::Reduction::NONE;
    return ov::is_type<ov::op::v3::ScatterNDUpdate>(&scatter);
}

Output part(const Output& x, size_t axis, int64_t begin, int64_t end) {
    const auto one = [](int64_t value) { return Constant::create(ov::element::i64, {1}, {value}); };
    return std::make_shared<ov::op::v8::Slice>(x, one(begin), one(end), one(1), one(int64_t(axis)));
}

}  // namespace

std::optional<SliceAssign> find_slice_assign(const ov::Node& node) {
    if (!ov::is_type<ov::op::v1::Reshape>(&node)) return {};
    const ov::Node* scatter = node.get_input_node_ptr(0);
    if (!overwrites(*scatter)) return {};
    SliceAssign assign;
    assign.into = reshaped(scatter->input_value(0), {-1});
    assign.update = reshaped(scatter->input_value(2), {-1});
    assign.shaped = shape_source(node.input_value(1));
    const Output indices = reshaped(scatter->input_value(1), {-1, 1});
    if (!assign.into.get_node() || !assign.update.get_node() || !assign.shaped.get_node() ||
        !indices.get_node() || !read_bounds(*indices.get_node(), assign) ||
        numbered(indices.get_node()->input_value(0)) != assign.shaped)
        return {};
    return assign;
}

void replace_slice_assigns(ov::Model& model) {
    std::vector<std::pair<std::shared_ptr<ov::Node>, SliceAssign>> found;
    const TokenLayouts layouts(model);
    for (const auto& node : model.get_ordered_ops())
        if (const auto assign = find_slice_assign(*node))
            if (layouts.of(node->output(0)).is_rows()) found.emplace_back(node, *assign);
    for (const auto& [node, assign] : found) {
        // An earlier assignment may be what this one is made of: ask for it now.
        const ov::Node* scatter = node->get_input_node_ptr(0);
        const Output into = scatter->get_input_node_ptr(0)->input_value(0);
        const Output update = scatter->get_input_node_ptr(2)->input_value(0);
        const int64_t size = layouts.of(node->output(0)).extents[assign.axis].size;
        ov::OutputVector parts;
        if (assign.begin > 0) parts.push_back(part(into, assign.axis, 0, assign.begin));
        parts.push_back(update);
        if (assign.end < size) parts.push_back(part(into, assign.axis, assign.end, size));
        replace_with(node, std::make_shared<ov::op::v0::Concat>(parts, int64_t(assign.axis)));
    }
    if (!found.empty()) model.validate_nodes_and_infer_types();
}

}  // namespace pagewheel
