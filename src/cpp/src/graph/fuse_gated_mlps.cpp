#include "graph/fuse_linear.hpp"
#include "graph/node_queries.hpp"
#include "openvino/op/multiply.hpp"
#include "openvino/op/sigmoid.hpp"
#include "openvino/op/swish.hpp"
#include "ops/quantized_linear.hpp"

namespace pagewheel {
namespace {

/// x, if `output` is x * sigmoid(x).
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

/// The gate and the up projection whose silu(gate) * up `output` is; null gate if it is none.
struct Halves {
    ov::Output<ov::Node> gate, up;
};

Halves find_halves(const ov::Output<ov::Node>& output) {
    const auto product = ov::as_type_ptr<ov::op::v1::Multiply>(output.get_node_shared_ptr());
    if (!product) return {};
    for (const size_t i : {0, 1}) {
        const ov::Output<ov::Node> silu = product->input_value(i);
        const ov::Output<ov::Node> gate = silu_input(silu);
        if (gate.get_node() && has_one_reader(silu)) return {gate, product->input_value(1 - i)};
    }
    return {};
}

/// Whether nothing but the activation reads the projections.
bool are_read_once(const Halves& halves) {
    const bool swish =
        ov::is_type<ov::op::v4::Swish>(halves.gate.get_target_inputs().begin()->get_node());
    return halves.gate.get_target_inputs().size() == (swish ? 1u : 2u) && has_one_reader(halves.up);
}

}  // namespace

size_t fuse_gated_mlps(const std::shared_ptr<ov::Model>& model) {
    size_t fused = 0;
    for (const auto& node : model->get_ordered_ops()) {
        const auto down = ov::as_type_ptr<QuantizedLinear>(node);
        if (!down || down->get_output_size() != 1 || down->attributes().norm.gamma ||
            down->attributes().residual || !has_one_reader(down->input_value(0)))
            continue;
        const Halves halves = find_halves(down->input_value(0));
        if (!halves.gate.get_node() || halves.gate.get_node() != halves.up.get_node()) continue;
        const auto both = ov::as_type_ptr<QuantizedLinear>(halves.gate.get_node_shared_ptr());
        if (!both || both->get_output_size() != 2 || both->attributes().residual ||
            halves.gate.get_index() == halves.up.get_index() || !are_read_once(halves))
            continue;
        GatedMlp::Attributes attributes;
        attributes.gate = both->attributes().weights[halves.gate.get_index()];
        attributes.up = both->attributes().weights[halves.up.get_index()];
        attributes.down = down->attributes().weights[0];
        attributes.norm = both->attributes().norm;
        attributes.activations = both->attributes().activations;
        const auto mlp =
            std::make_shared<GatedMlp>(ov::OutputVector{both->input_value(0)}, attributes);
        replace_with(down, mlp);
        ++fused;
    }
    return fused;
}

}  // namespace pagewheel
