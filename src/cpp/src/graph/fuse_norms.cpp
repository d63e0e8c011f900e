#include <optional>
#include <vector>

#include "graph/fuse_linear.hpp"
#include "graph/node_queries.hpp"
#include "openvino/op/add.hpp"
#include "openvino/op/divide.hpp"
#include "openvino/op/multiply.hpp"
#include "openvino/op/power.hpp"
#include "openvino/op/reduce_mean.hpp"
#include "openvino/op/sqrt.hpp"
#include "ops/quantized_linear.hpp"

namespace pagewheel {
namespace {

struct FoundNorm {
    ov::Output<ov::Node> x;
    RmsNorm norm;
};

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

/// The norm that `output` is: gamma * (x * 1 / sqrt(...)), factors in either order.
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

}  // namespace

size_t fuse_norms(const std::shared_ptr<ov::Model>& model) {
    size_t fused = 0;
    for (const auto& node : model->get_ordered_ops()) {
        const auto linear = ov::as_type_ptr<QuantizedLinear>(node);
        if (!linear || linear->attributes().norm.gamma || !has_one_reader(linear->input_value(0)))
            continue;
        const auto found = find_norm(linear->input_value(0), linear->attributes().weights[0]->k());
        if (!found) continue;
        QuantizedLinear::Attributes attributes = linear->attributes();
        attributes.norm = found->norm;
        ov::OutputVector inputs = linear->input_values();
        inputs[0] = found->x;
        replace_with(linear, std::make_shared<QuantizedLinear>(inputs, std::move(attributes)));
        ++fused;
    }
    return fused;
}

}  // namespace pagewheel
