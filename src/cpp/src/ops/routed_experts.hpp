// A layer's routed experts, as an OpenVINO operation on the CPU.
#pragma once

#include <memory>

#include "kernels/expert_router.hpp"
#include "kernels/experts.hpp"
#include "ops/quantized_linear.hpp"

namespace pagewheel {

/// Gated MLPs of which each row has a few, weighted and added (kernels/experts.hpp), with the
/// router that chooses them where the graph's is one that is known.
///
/// Inputs with a router: x f32 [..., k]; with `own_router_input`, what the router reads in x's
/// place, f32 [..., router's k]; with `residual`, f32 [..., n].
/// Inputs without: x f32 [..., k], weights f32 [..., active]; with `residual`, f32 [..., n]; the
/// experts' numbers i32 or i64 [..., active].
/// Output: f32 [..., n].
class RoutedExperts : public NativeOp {
public:
    OPENVINO_OP("RoutedExperts", "pagewheel")

    struct Attributes {
        std::shared_ptr<const kernels::Experts> experts;
        std::shared_ptr<const kernels::ExpertRouter> router;  ///< or null
        size_t active = 0;
        bool own_router_input = false;
        RmsNorm norm;  ///< of x, only with a router
        kernels::ActivationPrecision activations = kernels::ActivationPrecision::automatic;
        bool residual = false;
    };

    RoutedExperts() = default;
    RoutedExperts(const ov::OutputVector& inputs, Attributes attributes);

    void validate_and_infer_types() override;
    std::shared_ptr<ov::Node> clone_with_new_inputs(const ov::OutputVector& inputs) const override;
    bool visit_attributes(ov::AttributeVisitor& visitor) override;
    size_t num_row_inputs() const override;
    size_t output_width(size_t output) const override;
    void run(const NativeInputs& inputs, float* const* outputs) const override;

    const Attributes& attributes() const { return m_attributes; }

private:
    size_t k() const { return m_attributes.experts->experts[0].gate.k(); }
    size_t n() const { return m_attributes.experts->experts[0].down.n(); }

    Attributes m_attributes;
    Isa m_isa = detected_isa();
};

}  // namespace pagewheel
