#include <optional>
#include <vector>

#include "graph/fuse_linear.hpp"
#include "graph/node_queries.hpp"
#include "openvino/op/add.hpp"
#include "openvino/op/concat.hpp"
#include "openvino/op/multiply.hpp"
#include "openvino/op/negative.hpp"
#include "openvino/op/reshape.hpp"
#include "openvino/op/slice.hpp"
#include "openvino/op/transpose.hpp"
#include "ops/quantized_linear.hpp"

namespace pagewheel {
namespace {

using ov::op::v1::Multiply;

/// How heads of `size` that a projection gives are rotated, and what reads them then.
struct FoundRotary {
    ov::Output<ov::Node> cos, sin;
    size_t size = 0;
    std::shared_ptr<ov::Node> rows;  // the heads rotated, [tokens, heads * size]
};

/// The other factor of `output`, if that is a product with `factor`.
ov::Output<ov::Node> other_factor(const ov::Output<ov::Node>& output,
                                  const ov::Output<ov::Node>& factor) {
    const auto product = ov::as_type_ptr<Multiply>(output.get_node_shared_ptr());
    if (!product) return {};
    for (const size_t i : {0, 1})
        if (product->input_value(i) == factor) return product->input_value(1 - i);
    return {};
}

ov::Output<ov::Node> negated(const ov::Output<ov::Node>& output) {
    const auto node = output.get_node_shared_ptr();
    if (ov::is_type<ov::op::v0::Negative>(node)) return node->input_value(0);
    if (!ov::is_type<Multiply>(node)) return {};
    for (const size_t i : {0, 1})
        if (scalar(node->input_value(i)) == -1.0f) return node->input_value(1 - i);
    return {};
}

/// Whether `output` is elements [begin, end) of the last dimension of x, which has `size`.
bool is_slice(const ov::Output<ov::Node>& output, const ov::Output<ov::Node>& x, int64_t begin,
              int64_t end, int64_t size) {
    if (!output.get_node()) return false;
    const auto slice = ov::as_type_ptr<ov::op::v8::Slice>(output.get_node_shared_ptr());
    if (!slice || slice->input_value(0) != x || slice->get_input_size() != 5) return false;
    std::vector<int64_t> values;
    for (size_t i = 1; i < 5; ++i) {
        const auto constant = constant_under(slice->input_value(i));
        if (!constant || ov::shape_size(constant->get_shape()) != 1) return false;
        values.push_back(constant->cast_vector<int64_t>()[0]);
    }
    return values[0] == begin && std::min(values[1], size) == end && values[2] == 1 &&
           (values[3] == 3 || values[3] == -1);
}

/// Whether `output` is (-second half, first half) of x.
bool is_rotated_half(const ov::Output<ov::Node>& output, const ov::Output<ov::Node>& x,
                     int64_t size) {
    const auto concat = ov::as_type_ptr<ov::op::v0::Concat>(output.get_node_shared_ptr());
    return concat && concat->get_input_size() == 2 &&
           (concat->get_axis() == 3 || concat->get_axis() == -1) &&
           is_slice(negated(concat->input_value(0)), x, size / 2, size, size) &&
           is_slice(concat->input_value(1), x, 0, size / 2, size);
}

/// Cosines or sines of each token, alike for all heads: f32 [tokens, 1, 1, size].
bool are_angles(const ov::Output<ov::Node>& output, size_t size) {
    if (!output.get_node() || output.get_element_type() != ov::element::f32) return false;
    const ov::PartialShape shape = output.get_partial_shape();
    return shape.rank().is_static() && shape.size() == 4 && shape[1] == 1 && shape[2] == 1 &&
           shape[3] == int64_t(size);
}

/// x * cos + rotate_half(x) * sin, in either order.
bool find_angles(const std::shared_ptr<ov::Node>& sum, const ov::Output<ov::Node>& x,
                 FoundRotary& found) {
    if (!ov::is_type<ov::op::v1::Add>(sum)) return false;
    for (const size_t i : {0, 1}) {
        found.cos = other_factor(sum->input_value(i), x);
        const auto rotated = ov::as_type_ptr<Multiply>(sum->get_input_node_shared_ptr(1 - i));
        if (!rotated || !are_angles(found.cos, found.size)) continue;
        for (const size_t j : {0, 1}) {
            found.sin = rotated->input_value(j);
            if (are_angles(found.sin, found.size) &&
                is_rotated_half(rotated->input_value(1 - j), x, int64_t(found.size)))
                return true;
        }
    }
    return false;
}

/// The node, if it swaps dimensions 1 and 2 of 4.
std::shared_ptr<ov::Node> as_swap(const std::shared_ptr<ov::Node>& node) {
    if (!ov::is_type<ov::op::v1::Transpose>(node)) return nullptr;
    const auto order = constant_under(node->input_value(1));
    const bool swaps = order && order->cast_vector<int64_t>() == std::vector<int64_t>{0, 2, 1, 3};
    return swaps ? node : nullptr;
}

/// [tokens, 1, heads * size] -> [tokens, heads, 1, size] -> rotated -> [tokens, heads * size].
std::optional<FoundRotary> find_rotary(const ov::Output<ov::Node>& projection) {
    const ov::PartialShape given = projection.get_partial_shape();
    const auto heads = only_reader(projection);
    if (!ov::is_type<ov::op::v1::Reshape>(heads) || given.size() != 3 || given[1] != 1) return {};
    const ov::PartialShape shape = heads->get_output_partial_shape(0);
    if (shape.size() != 4 || shape[1] != 1 || shape[2].is_dynamic() || shape[3].is_dynamic() ||
        shape[2].get_length() * shape[3].get_length() != given[2].get_length())
        return {};
    const auto swapped = as_swap(only_reader(heads->output(0)));
    if (!swapped || swapped->output(0).get_target_inputs().size() != 3) return {};
    FoundRotary found;
    found.size = size_t(shape[3].get_length());
    for (const ov::Input<ov::Node>& reader : swapped->output(0).get_target_inputs()) {
        const auto sum = only_reader(reader.get_node()->output(0));
        if (!sum || !find_angles(sum, swapped->output(0), found)) continue;
        const auto back = as_swap(only_reader(sum->output(0)));
        found.rows = back ? only_reader(back->output(0)) : nullptr;
        if (!ov::is_type<ov::op::v1::Reshape>(found.rows)) return {};
        const ov::PartialShape rows = found.rows->get_output_partial_shape(0);
        if (rows.size() == 2 && rows[1] == given[2]) return found;
        return {};
    }
    return {};
}

/// The node with the heads of some outputs rotated.
void fuse(const std::shared_ptr<QuantizedLinear>& linear,
          const std::vector<std::optional<FoundRotary>>& found, const FoundRotary& first) {
    QuantizedLinear::Attributes attributes = linear->attributes();
    for (const auto& each : found) attributes.rotary_sizes.push_back(each ? each->size : 0);
    const auto fused = std::make_shared<QuantizedLinear>(
        ov::OutputVector{linear->input_value(0), first.cos, first.sin}, std::move(attributes));
    for (size_t i = 0; i < found.size(); ++i) {
        if (!found[i]) continue;
        const auto width = int64_t(fused->attributes().weights[i]->n());
        const auto shape =
            ov::op::v0::Constant::create(ov::element::i64, {2}, {int64_t(-1), width});
        found[i]->rows->output(0).replace(
            std::make_shared<ov::op::v1::Reshape>(fused->output(i), shape, false));
    }
    replace_with(linear, fused);
}

}  // namespace

size_t fuse_rotary(const std::shared_ptr<ov::Model>& model) {
    size_t fused = 0;
    for (const auto& node : model->get_ordered_ops()) {
        const auto linear = ov::as_type_ptr<QuantizedLinear>(node);
        if (!linear || linear->attributes().residual) continue;
        std::vector<std::optional<FoundRotary>> found;
        const FoundRotary* first = nullptr;
        for (size_t i = 0; i < linear->get_output_size(); ++i)
            found.push_back(find_rotary(linear->output(i)));
        for (auto& each : found) {
            if (!each) continue;
            if (!first) first = &*each;
            if (each->cos != first->cos || each->sin != first->sin || each->size != first->size)
                each.reset();
        }
        if (!first) continue;
        fuse(linear, found, *first);
        ++fused;
    }
    return fused;
}

}  // namespace pagewheel
