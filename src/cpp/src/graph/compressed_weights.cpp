#include "graph/compressed_weights.hpp"

#include <string>
#include <vector>

#include "check.hpp"
#include "graph/node_queries.hpp"
#include "openvino/op/multiply.hpp"
#include "openvino/op/reshape.hpp"
#include "openvino/op/subtract.hpp"

namespace pagewheel {
namespace {

using ov::op::v0::Constant;
using ov::op::v0::Convert;

bool weight_type(const ov::element::Type& type, kernels::WeightType& out) {
    using kernels::WeightType;
    if (type == ov::element::u4)
        out = WeightType::u4;
    else if (type == ov::element::i4)
        out = WeightType::i4;
    else if (type == ov::element::u8)
        out = WeightType::u8;
    else if (type == ov::element::i8)
        out = WeightType::i8;
    else
        return false;
    return true;
}

/// The constant's values as f32 [n, groups], repeated where it has one per row or one in all.
std::vector<float> per_group(const Constant& constant, size_t n, size_t groups) {
    std::vector<float> values = constant.cast_vector<float>();
    if (values.size() == n * groups) return values;
    std::vector<float> all(n * groups);
    for (size_t i = 0; i < all.size(); ++i) all[i] = values[values.size() == 1 ? 0 : i / groups];
    return all;
}

/// Whether the constant's shape has one value per row and group ([n, groups, 1]), per row or in
/// all, over values of shape [n, groups, group] or [n, k].
bool fits(const Constant& constant, const ov::Shape& values) {
    if (ov::shape_size(constant.get_shape()) == 1) return true;
    ov::Shape expected = values;
    expected.back() = 1;
    ov::Shape per_row = expected;
    if (per_row.size() == 3) per_row[1] = 1;
    return constant.get_shape() == expected || constant.get_shape() == per_row;
}

}  // namespace

std::unique_ptr<CompressedWeights> find_compressed_weights(const ov::Output<ov::Node>& output,
                                                           std::string& reason) {
    const auto refuse = [&](const std::string& why) {
        reason = why;
        return std::unique_ptr<CompressedWeights>();
    };
    auto node = without_converts(output.get_node_shared_ptr());
    if (ov::is_type<ov::op::v1::Reshape>(node))
        node = without_converts(node->get_input_node_shared_ptr(0));
    const auto multiply = ov::as_type_ptr<ov::op::v1::Multiply>(node);
    if (!multiply) return refuse("its weights are not compressed");

    auto found = std::make_unique<CompressedWeights>();
    found->scales = constant_under(multiply->input_value(1));
    node = multiply->get_input_node_shared_ptr(0);
    if (const auto subtract = ov::as_type_ptr<ov::op::v1::Subtract>(node)) {
        found->zero_points = constant_under(subtract->input_value(1));
        if (!found->zero_points) return refuse("its zero point is not a constant");
        node = subtract->get_input_node_shared_ptr(0);
    }
    found->values = ov::as_type_ptr<Constant>(without_converts(node));
    if (!found->values || !found->scales || !ov::is_type<Convert>(node))
        return refuse("its weights are not compressed");
    if (!weight_type(found->values->get_element_type(), found->type))
        return refuse(concat("its weights are ", found->values->get_element_type()));

    const ov::Shape values = found->values->get_shape();
    const ov::PartialShape shape = output.get_partial_shape();
    if ((values.size() != 2 && values.size() != 3) || shape.is_dynamic() || shape.size() != 2 ||
        shape[0].get_length() != int64_t(values[0]))
        return refuse(concat("its weights have shape ", values));
    found->n = values[0];
    found->k = ov::shape_size(values) / values[0];
    found->groups = values.size() == 3 ? values[1] : 1;
    if (found->groups > 1 && found->k / found->groups % kernels::PackedLinear::k_block != 0)
        return refuse(concat("its weights are in groups of ", found->k / found->groups));
    if (!fits(*found->scales, values) || (found->zero_points && !fits(*found->zero_points, values)))
        return refuse("its scales or zero points have another shape than its groups");
    return found;
}

std::shared_ptr<const kernels::PackedLinear> CompressedWeights::pack(
    kernels::WeightMemory& memory) const {
    const std::vector<float> scale = per_group(*scales, n, groups);
    const std::vector<float> zero =
        zero_points ? per_group(*zero_points, n, groups) : std::vector<float>();
    kernels::LinearWeights weights;
    weights.n = n;
    weights.k = k;
    weights.group = k / groups;
    weights.type = type;
    weights.values = values->get_data_ptr();
    weights.scales = scale.data();
    weights.zero_points = zero.empty() ? nullptr : zero.data();
    return std::make_shared<const kernels::PackedLinear>(weights, memory);
}

}  // namespace pagewheel
