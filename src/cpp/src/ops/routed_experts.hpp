// A layer's routed experts, as an OpenVINO operation on the CPU.
#pragma once

#include <memory>

#include "kernels/expert_router.hpp"
#include "kernels/experts.hpp"
#include "ops/quantized_linear.hpp"

namespace pagewheel {

struct RoutedExpertsAttributes {
    std::shared_ptr<const kernels::Experts> experts;
    std::shared_ptr<const kernels::ExpertRouter> router;  ///< or null
    size_t active = 0;
    bool own_router_input = false;
    RmsNorm norm;  ///< of x, only with a router
    kernels::ActivationPrecision activations = kernels::ActivationPrecision::automatic;
    bool residual = false;
};

/// Gated MLPs of which each row has a few, weighted and added (kernels/experts.hpp), with the
/// router that chooses them where the graph's is one that is known.
///
/// Inputs with a router: x f32 [..., k]; with `own_router_input`, what the router reads in x's
/// place, f32 [..., router's k]; with `residual`, f32 [..., n].
/// Inputs without: x f32 [..., k], weights f32 [..., active]; with `residual`, f32 [..., n]; the
/// experts' numbers i32 or i64 [..., active].
/// Output: f32 [..., n].
class RoutedExperts : public AttributedOp<RoutedExperts, RoutedExpertsAttributes> {
public:
    OPENVINO_OP("RoutedExperts", "pagewheel")

    RoutedExperts(const ov::OutputVector& inputs, Attributes attributes)
        : Base(inputs, std::move(attributes)) {
        constructor_validate_and_infer_types();
    }

    void validate_and_infer_types() override;
    bool visit_attributes(ov::AttributeVisitor& visitor) override;
    size_t num_row_inputs() const override;
    size_t output_width(size_t output) const override;
    void run(const NativeInputs& inputs, float* const* outputs) const override;

private:
    size_t k() const { return m_attributes.experts->experts[0].gate.k(); }
    size_t n() const { return m_attributes.experts->experts[0].down.n(); }
};

}  // namespace pagewheel
