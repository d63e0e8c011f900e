#include "ops/quantized_linear.hpp"

#include <algorithm>
#include <string>

#include "base/check.hpp"
#include "kernels/quantized_linear.hpp"

namespace pagewheel {
namespace {

void visit_norm(ov::AttributeVisitor& visitor, RmsNorm& norm) {
    visit_identity(visitor, "gamma", norm.gamma.get());
    visitor.on_attribute("epsilon", norm.epsilon);
}

/// Throws InvalidArgument, which calls it `name`, if it has another size.
const float* rows_of(const char* name, const Rows& given, size_t rows, size_t width) {
    check_argument(given.size() == rows * width, "got ", name, " [", given.count, ",", given.width,
                   "], expected [", rows, ",", width, "]");
    return given.values;
}

}  // namespace

kernels::LinearInput RmsNorm::applied_to(const Rows& x, size_t k) const {
    check_argument(x.width == k, "got an input [", x.count, ",", x.width, "], expected ", k,
                   " in the last dimension");
    kernels::LinearInput input;
    input.x = x.values;
    input.rows = x.count;
    input.gamma = gamma ? gamma->data() : nullptr;
    input.epsilon = epsilon;
    return input;
}

size_t LinearAttributes::rotary_size() const {
    size_t most = 0;
    for (const LinearHeads& each : heads) most = std::max(most, each.rotated);
    return most;
}

void QuantizedLinear::validate_and_infer_types() {
    const auto& weights = m_attributes.weights;
    const auto& heads = m_attributes.heads;
    const size_t rotary_size = m_attributes.rotary_size();
    const size_t inputs = 1 + m_attributes.gated + (m_attributes.residual ? weights.size() : 0) +
                          (rotary_size > 0 ? 2 : 0);
    NODE_VALIDATION_CHECK(this, !weights.empty(), "got no weights");
    NODE_VALIDATION_CHECK(this, !m_attributes.residual || heads.empty(),
                          "got both residuals and heads");
    NODE_VALIDATION_CHECK(this, heads.empty() || heads.size() == weights.size(), "got heads of ",
                          heads.size(), " outputs, expected ", weights.size());
    for (size_t i = 0; i < heads.size(); ++i) {
        const auto& [size, norm, rotated] = heads[i];
        NODE_VALIDATION_CHECK(this, size == 0 ? rotated == 0 : weights[i]->n() % size == 0,
                              "got heads of ", size, " in an output of ", weights[i]->n());
        NODE_VALIDATION_CHECK(this, !norm.gamma || norm.gamma->size() == size, "got heads of ",
                              size, " with a norm of another size");
        NODE_VALIDATION_CHECK(
            this, rotated == 0 || (rotated == rotary_size && rotated % 2 == 0 && rotated <= size),
            "got ", rotated, " values to rotate in heads of ", size, " beside ", rotary_size);
    }
    NODE_VALIDATION_CHECK(this, get_input_size() == inputs, "got ", get_input_size(),
                          " inputs, expected ", inputs);
    NODE_VALIDATION_CHECK(
        this, !m_attributes.norm.gamma || m_attributes.norm.gamma->size() == weights[0]->k(),
        "got a norm of ", m_attributes.norm.gamma->size(), ", expected ", weights[0]->k());
    set_output_size(weights.size());
    for (size_t i = 0; i < weights.size(); ++i) {
        NODE_VALIDATION_CHECK(this, weights[i]->k() == weights[0]->k(), "got weights of ",
                              weights[i]->k(), " inputs beside weights of ", weights[0]->k());
        set_output_type(i, ov::element::f32,
                        output_of_rows(this, weights[0]->k(), weights[i]->n()));
    }
}

bool QuantizedLinear::visit_attributes(ov::AttributeVisitor& visitor) {
    for (size_t i = 0; i < m_attributes.weights.size(); ++i)
        visit_identity(visitor, concat("weights.", i), m_attributes.weights[i].get());
    visit_norm(visitor, m_attributes.norm);
    visitor.on_attribute("residual", m_attributes.residual);
    visitor.on_attribute("gated", m_attributes.gated);
    std::string heads;
    for (const auto& [size, norm, rotated] : m_attributes.heads)
        heads += concat(size, " ", norm.gamma.get(), " ", norm.epsilon, " ", rotated, " ");
    visitor.on_attribute("heads", heads);
    return true;
}

size_t QuantizedLinear::output_width(size_t output) const {
    return m_attributes.weights[output]->n();
}

void QuantizedLinear::run(const NativeInputs& inputs, float* const* outputs) const {
    const auto& weights = m_attributes.weights;
    kernels::LinearInput input = m_attributes.norm.applied_to(inputs.rows[0], weights[0]->k());
    kernels::WeightForm form = weights[0]->form();
    for (const auto& one : weights) form = common_form(form, one->form());
    input.activations = choose_activations(m_attributes.activations, input.rows, form, m_isa);
    const Rows* further = inputs.rows.data() + 1;
    if (m_attributes.gated) input.gate = rows_of("a gate", *further++, input.rows, weights[0]->k());
    static thread_local std::vector<kernels::LinearOutput> calls;
    calls.assign(weights.size(), {});
    for (size_t i = 0; i < weights.size(); ++i) {
        calls[i].weights = weights[i].get();
        calls[i].output = outputs[i];
        if (m_attributes.residual)
            calls[i].residual = rows_of("a residual", *further++, input.rows, weights[i]->n());
        if (m_attributes.heads.empty()) continue;
        const auto& [size, norm, rotated] = m_attributes.heads[i];
        calls[i].heads = {size, norm.gamma ? norm.gamma->data() : nullptr, norm.epsilon,
                          rotated > 0};
    }
    kernels::RotaryAngles angles;
    angles.size = m_attributes.rotary_size();
    if (angles.size > 0) {
        angles.cos = rows_of("cosines", *further++, input.rows, angles.size);
        angles.sin = rows_of("sines", *further++, input.rows, angles.size);
    }
    kernels::quantized_linear(input, calls.data(), calls.size(), m_isa, angles);
}

void GatedMlp::validate_and_infer_types() {
    const size_t inputs = m_attributes.residual ? 2 : 1;
    NODE_VALIDATION_CHECK(this, get_input_size() == inputs, "got ", get_input_size(),
                          " inputs, expected ", inputs);
    const auto &gate = *m_attributes.gate, &up = *m_attributes.up, &down = *m_attributes.down;
    NODE_VALIDATION_CHECK(this, gate.k() == up.k() && gate.n() == up.n() && down.k() == gate.n(),
                          "got gate [", gate.n(), ", ", gate.k(), "], up [", up.n(), ", ", up.k(),
                          "] and down [", down.n(), ", ", down.k(), "]");
    set_output_type(0, ov::element::f32, output_of_rows(this, gate.k(), down.n()));
}

bool GatedMlp::visit_attributes(ov::AttributeVisitor& visitor) {
    visit_identity(visitor, "gate", m_attributes.gate.get());
    visit_identity(visitor, "up", m_attributes.up.get());
    visit_identity(visitor, "down", m_attributes.down.get());
    visit_norm(visitor, m_attributes.norm);
    visitor.on_attribute("residual", m_attributes.residual);
    return true;
}

size_t GatedMlp::output_width(size_t) const {
    return m_attributes.down->n();
}

void GatedMlp::run(const NativeInputs& inputs, float* const* outputs) const {
    kernels::LinearInput input =
        m_attributes.norm.applied_to(inputs.rows[0], m_attributes.gate->k());
    kernels::GatedMlp mlp;
    mlp.gate = m_attributes.gate.get();
    mlp.up = m_attributes.up.get();
    mlp.down = m_attributes.down.get();
    const kernels::WeightForm form =
        common_form(common_form(mlp.gate->form(), mlp.up->form()), mlp.down->form());
    input.activations = choose_activations(m_attributes.activations, input.rows, form, m_isa);
    mlp.output = outputs[0];
    if (m_attributes.residual)
        mlp.residual = rows_of("a residual", inputs.rows[1], input.rows, m_attributes.down->n());
    kernels::gated_mlp(input, mlp, m_isa);
}

}  // namespace pagewheel
