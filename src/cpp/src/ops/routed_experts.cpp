#include "ops/routed_experts.hpp"

#include <utility>
#include <vector>

#include "base/check.hpp"
#include "kernels/kernels.hpp"

namespace pagewheel {
namespace {

template <class T>
void read_numbers(const ov::Tensor& tensor, std::vector<uint32_t>& numbers) {
    const T* values = tensor.data<const T>();
    for (size_t i = 0; i < numbers.size(); ++i)  // negative ones become too large, and are refused
        numbers[i] = values[i] < 0 ? UINT32_MAX : uint32_t(values[i]);
}

}  // namespace

size_t RoutedExperts::num_row_inputs() const {
    return get_input_size() - (m_attributes.router ? 0 : 1);
}

void RoutedExperts::validate_and_infer_types() {
    const auto& router = m_attributes.router;
    const bool own_input = m_attributes.own_router_input;
    const size_t inputs = (router ? 1 : 3) + (own_input ? 1 : 0) + (m_attributes.residual ? 1 : 0);
    NODE_VALIDATION_CHECK(this, get_input_size() == inputs, "got ", get_input_size(),
                          " inputs, expected ", inputs);
    const size_t count = m_attributes.experts->experts.size();
    NODE_VALIDATION_CHECK(this, m_attributes.active > 0 && m_attributes.active <= count, "got ",
                          m_attributes.active, " active experts of ", count);
    NODE_VALIDATION_CHECK(this,
                          !router || ((own_input || router->k == k()) && router->experts == count &&
                                      router->active == m_attributes.active),
                          "got a router to other experts");
    set_output_type(0, ov::element::f32, output_of_rows(this, k(), n()));
}

bool RoutedExperts::visit_attributes(ov::AttributeVisitor& visitor) {
    visit_identity(visitor, "experts", m_attributes.experts.get());
    visit_identity(visitor, "gamma", m_attributes.norm.gamma.get());
    visitor.on_attribute("residual", m_attributes.residual);
    return true;
}

size_t RoutedExperts::output_width(size_t) const {
    return n();
}

void RoutedExperts::run(const NativeInputs& inputs, float* const* outputs) const {
    kernels::LinearInput input = m_attributes.norm.applied_to(inputs.rows[0], k());
    const size_t assignments = input.rows * m_attributes.active;
    static thread_local std::vector<uint32_t> chosen;
    static thread_local std::vector<float> own_weights, normed;
    chosen.resize(assignments);
    kernels::Routing routing;
    routing.active = m_attributes.active;
    routing.chosen = chosen.data();
    if (input.gamma) {  // once for the router and the experts
        normed.resize(inputs.rows[0].size());
        for (size_t r = 0; r < input.rows; ++r)
            m_isa.kernels().linear.rms_norm(input.x + r * k(), input.gamma, input.epsilon, k(),
                                            normed.data() + r * k());
        input.x = normed.data();
        input.gamma = nullptr;
    }
    if (m_attributes.router) {
        const kernels::ExpertRouter& router = *m_attributes.router;
        const Rows& own = inputs.rows[m_attributes.own_router_input ? 1 : 0];
        check_argument(!m_attributes.own_router_input || own.size() == input.rows * router.k,
                       "got rows [", own.count, ",", own.width, "] for a router of ", input.rows,
                       " rows of ", router.k);
        own_weights.resize(assignments);
        kernels::route(router, m_attributes.own_router_input ? own.values : input.x, input.rows,
                       chosen.data(), own_weights.data(), m_isa);
        routing.weights = own_weights.data();
    } else {
        const ov::Tensor& numbers = *inputs.tensors[0];
        check_argument(numbers.get_size() == assignments && inputs.rows[1].size() == assignments,
                       "got ", numbers.get_size(), " experts and ", inputs.rows[1].size(),
                       " weights for ", input.rows, " rows of ", m_attributes.active);
        numbers.get_element_type() == ov::element::i64 ? read_numbers<int64_t>(numbers, chosen)
                                                       : read_numbers<int32_t>(numbers, chosen);
        routing.weights = inputs.rows[1].values;
    }
    const float* residual = nullptr;
    if (m_attributes.residual) {
        const Rows& rows = inputs.rows.back();
        check_argument(rows.size() == input.rows * n(), "got a residual [", rows.count, ",",
                       rows.width, "] for an output [", input.rows, ",", n(), "]");
        residual = rows.values;
    }
    kernels::routed_experts(input, *m_attributes.experts, routing, m_attributes.activations,
                            outputs[0], residual, m_isa);
}

}  // namespace pagewheel
