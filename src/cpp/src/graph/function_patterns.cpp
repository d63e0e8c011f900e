#include "graph/function_patterns.hpp"

#include <memory>
#include <vector>

#include "graph/node_queries.hpp"
#include "openvino/op/add.hpp"
#include "openvino/op/divide.hpp"
#include "openvino/op/multiply.hpp"
#include "openvino/op/power.hpp"
#include "openvino/op/reduce_mean.hpp"
#include "openvino/op/sigmoid.hpp"
#include "openvino/op/slice.hpp"
#include "openvino/op/split.hpp"
#include "openvino/op/sqrt.hpp"
#include "openvino/op/swish.hpp"
#include "openvino/op/variadic_split.hpp"

namespace pagewheel {
namespace {

/// epsilon, if `node` is mean(x^2) + epsilon over the last dimension.
std::optional<float> mean_square_plus_epsilon(const std::shared_ptr<ov::Node>& node,
                                              const ov::Output<ov::Node>& x) {
    const auto add = ov::as_type_ptr<ov::op::v1::Add>(node);
    if (!add) return {};
    for (const size_t i : {0, 1}) {
        const auto mean =
            ov::as_type_ptr<ov::op::v1::ReduceMean>(add->get_input_node_shared_ptr(i));
        const auto epsilon = scalar(add->input_value(1 - i));
        if (!mean || !epsilon || !mean->get_keep_dims()) continue;
        const auto axis = scalar(mean->input_value(1));
        const auto rank = x.get_partial_shape().rank();
        if (!axis || rank.is_dynamic() || (*axis != -1 && *axis != float(rank.get_length() - 1)))
            continue;
        const auto square = mean->get_input_node_shared_ptr(0);
        const bool power = ov::is_type<ov::op::v1::Power>(square) && square->input_value(0) == x &&
                           scalar(square->input_value(1)) == 2.0f;
        const bool product = ov::is_type<ov::op::v1::Multiply>(square) &&
                             square->input_value(0) == x && square->input_value(1) == x;
        if (power || product) return epsilon;
    }
    return {};
}

/// epsilon, if `node` is 1 / sqrt(mean(x^2) + epsilon).
std::optional<float> inverse_root(const std::shared_ptr<ov::Node>& node,
                                  const ov::Output<ov::Node>& x) {
    if (ov::is_type<ov::op::v1::Power>(node) && scalar(node->input_value(1)) == -0.5f)
        return mean_square_plus_epsilon(node->get_input_node_shared_ptr(0), x);
    if (!ov::is_type<ov::op::v1::Divide>(node) || scalar(node->input_value(0)) != 1.0f) return {};
    const auto root = node->get_input_node_shared_ptr(1);
    if (!ov::is_type<ov::op::v0::Sqrt>(root)) return {};
    return mean_square_plus_epsilon(root->get_input_node_shared_ptr(0), x);
}

/// Where a part of the last dimension begins in it.
std::optional<size_t> first_column(const ov::Output<ov::Node>& part) {
    const auto node = part.get_node_shared_ptr();
    const size_t rank = size_t(part.get_partial_shape().size());
    const auto is_last = [&](size_t input) {
        return is_axis(node->input_value(input), int64_t(rank) - 1, rank);
    };
    if (ov::is_type<ov::op::v1::VariadicSplit>(node) || ov::is_type<ov::op::v1::Split>(node)) {
        if (!is_last(1)) return {};
        size_t first = 0;
        for (size_t i = 0; i < part.get_index(); ++i) {
            const size_t before = row_width(node->get_output_partial_shape(i));
            if (before == 0) return {};
            first += before;
        }
        return first;
    }
    if (!ov::is_type<ov::op::v8::Slice>(node) || node->get_input_size() != 5 || !is_last(4))
        return {};
    const auto first = integers(node->input_value(1)), step = integers(node->input_value(3));
    if (!first || first->size() != 1 || (*first)[0] < 0 || !step || (*step)[0] != 1) return {};
    return size_t((*first)[0]);
}

}  // namespace

std::optional<FoundNorm> find_norm(const ov::Output<ov::Node>& output, size_t k) {
    const auto scaled = ov::as_type_ptr<ov::op::v1::Multiply>(output.get_node_shared_ptr());
    if (!scaled) return {};
    for (const size_t i : {0, 1}) {
        const auto gamma = constant_under(scaled->input_value(i));
        const auto normed =
            ov::as_type_ptr<ov::op::v1::Multiply>(scaled->get_input_node_shared_ptr(1 - i));
        if (!gamma || !normed || ov::shape_size(gamma->get_shape()) != k) continue;
        for (const size_t j : {0, 1}) {
            const ov::Output<ov::Node> x = normed->input_value(j);
            const auto epsilon = inverse_root(normed->get_input_node_shared_ptr(1 - j), x);
            if (!epsilon || x.get_element_type() != ov::element::f32) continue;
            return FoundNorm{
                x,
                {std::make_shared<const std::vector<float>>(gamma->cast_vector<float>()),
                 *epsilon}};
        }
    }
    return {};
}

ov::Output<ov::Node> silu_input(const ov::Output<ov::Node>& output) {
    const auto node = output.get_node_shared_ptr();
    if (ov::is_type<ov::op::v4::Swish>(node)) {
        const bool plain = node->get_input_size() == 1 || scalar(node->input_value(1)) == 1.0f;
        return plain ? node->input_value(0) : ov::Output<ov::Node>();
    }
    if (!ov::is_type<ov::op::v1::Multiply>(node)) return {};
    for (const size_t i : {0, 1}) {
        const auto sigmoid = node->get_input_node_shared_ptr(i);
        if (ov::is_type<ov::op::v0::Sigmoid>(sigmoid) &&
            sigmoid->input_value(0) == node->input_value(1 - i))
            return sigmoid->input_value(0);
    }
    return {};
}

std::optional<FoundColumns> find_columns(const ov::Output<ov::Node>& output, size_t width) {
    const ov::Output<ov::Node> part = without_views(output);
    if (row_width(part.get_partial_shape()) != width) return {};
    const std::optional<size_t> first = first_column(part);
    const ov::Output<ov::Node> rows = first ? without_views(part.get_node()->input_value(0)) : part;
    const size_t whole = first ? row_width(part.get_node()->get_input_partial_shape(0)) : width;
    if (rows.get_element_type() != ov::element::f32 || whole == 0 ||
        row_width(rows.get_partial_shape()) != whole)
        return {};
    return FoundColumns{rows, first.value_or(0)};
}

}  // namespace pagewheel
