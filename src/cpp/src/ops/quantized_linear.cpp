#include "ops/quantized_linear.hpp"

#include <string>

#include "check.hpp"
#include "kernels/quantized_linear.hpp"

namespace pagewheel {

QuantizedLinear::QuantizedLinear(const ov::OutputVector& inputs, Attributes attributes)
    : Op(inputs), m_attributes(std::move(attributes)) {
    constructor_validate_and_infer_types();
}

void QuantizedLinear::validate_and_infer_types() {
    const auto& weights = m_attributes.weights;
    const size_t inputs = 1 + (m_attributes.residual ? weights.size() : 0);
    NODE_VALIDATION_CHECK(this, !weights.empty(), "got no weights");
    NODE_VALIDATION_CHECK(this, get_input_size() == inputs, "got ", get_input_size(),
                          " inputs, expected ", inputs);
    ov::PartialShape shape = get_input_partial_shape(0);
    NODE_VALIDATION_CHECK(this, shape.rank().is_static() && shape.size() > 0, "got an input ",
                          shape, ", expected at least one dimension");
    const size_t last = shape.size() - 1;
    set_output_size(weights.size());
    for (size_t i = 0; i < weights.size(); ++i) {
        NODE_VALIDATION_CHECK(this, shape[last].compatible(int64_t(weights[i]->k())) || i > 0,
                              "got an input ", shape, ", expected ", weights[i]->k(),
                              " in the last dimension");
        NODE_VALIDATION_CHECK(this, weights[i]->k() == weights[0]->k(), "got weights of ",
                              weights[i]->k(), " inputs beside weights of ", weights[0]->k());
        shape[last] = int64_t(weights[i]->n());
        set_output_type(i, ov::element::f32, shape);
    }
}

std::shared_ptr<ov::Node> QuantizedLinear::clone_with_new_inputs(
    const ov::OutputVector& inputs) const {
    return std::make_shared<QuantizedLinear>(inputs, m_attributes);
}

bool QuantizedLinear::visit_attributes(ov::AttributeVisitor& visitor) {
    // The runtime merges nodes that look alike: weights are told apart by where they are.
    std::string identity;
    for (const Weights& weights : m_attributes.weights)
        identity += concat(static_cast<const void*>(weights.get()), " ");
    visitor.on_attribute("weights", identity);
    visitor.on_attribute("residual", m_attributes.residual);
    return true;
}

bool QuantizedLinear::evaluate(ov::TensorVector& outputs, const ov::TensorVector& inputs) const {
    const auto& weights = m_attributes.weights;
    ov::Shape shape = inputs[0].get_shape();
    const size_t k = weights[0]->k();
    check_argument(shape.back() == k, get_friendly_name(), ": got an input ", shape, ", expected ",
                   k, " in the last dimension");
    const size_t rows = inputs[0].get_size() / k;
    std::vector<kernels::LinearOutput> calls(weights.size());
    for (size_t i = 0; i < weights.size(); ++i) {
        shape.back() = weights[i]->n();
        outputs[i].set_shape(shape);
        calls[i].weights = weights[i].get();
        calls[i].output = outputs[i].data<float>();
        if (!m_attributes.residual) continue;
        const ov::Tensor& residual = inputs[1 + i];
        check_argument(residual.get_size() == outputs[i].get_size(), get_friendly_name(),
                       ": got a residual ", residual.get_shape(), " for an output ", shape);
        calls[i].residual = residual.data<const float>();
    }
    kernels::quantized_linear(calls.data(), calls.size(), inputs[0].data<const float>(), rows,
                              m_isa);
    return true;
}

}  // namespace pagewheel
