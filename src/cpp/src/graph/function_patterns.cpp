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
#include "openvino/op/sqrt.hpp"
#include "openvino/op/swish.hpp"

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

}  // namespace pagewheel
