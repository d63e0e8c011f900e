#include "graph/fuse_linear.hpp"
#include "graph/node_queries.hpp"
#include "openvino/op/add.hpp"
#include "ops/quantized_linear.hpp"

namespace pagewheel {
namespace {

/// What the output is added to, if that is its only use and a stream of the same shape.
std::shared_ptr<ov::op::v1::Add> residual_sum(const ov::Output<ov::Node>& output,
                                              ov::Output<ov::Node>& residual) {
    const auto add = ov::as_type_ptr<ov::op::v1::Add>(only_reader(output));
    if (!add || add->input_value(0) == add->input_value(1)) return nullptr;
    residual = add->input_value(add->input_value(0) == output ? 1 : 0);
    // A bias has the same last dimension, but fewer others or fixed ones.
    const bool same = residual.get_element_type() == ov::element::f32 &&
                      residual.get_partial_shape() == output.get_partial_shape();
    return same ? add : nullptr;
}

template <class Node>
bool fuse(const std::shared_ptr<Node>& node) {
    if (!node || node->get_output_size() != 1 || node->attributes().residual) return false;
    ov::Output<ov::Node> residual;
    const auto add = residual_sum(node->output(0), residual);
    if (!add) return false;
    auto attributes = node->attributes();
    attributes.residual = true;
    const auto fused =
        std::make_shared<Node>(ov::OutputVector{node->input_value(0), residual}, attributes);
    fused->set_friendly_name(node->get_friendly_name());
    add->output(0).replace(fused->output(0));
    return true;
}

}  // namespace

size_t fuse_residuals(const std::shared_ptr<ov::Model>& model) {
    size_t fused = 0;
    for (const auto& node : model->get_ordered_ops())
        fused +=
            fuse(ov::as_type_ptr<QuantizedLinear>(node)) || fuse(ov::as_type_ptr<GatedMlp>(node));
    return fused;
}

}  // namespace pagewheel
