// Linear layers of compressed weights, as an OpenVINO operation on the CPU.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "kernels/isa.hpp"
#include "kernels/packed_linear.hpp"
#include "openvino/op/op.hpp"

namespace pagewheel {

/// Multiplies one input by one or several matrices: q, k and v, or gate and up, at once.
///
/// Inputs: x f32 [..., k]; with `residual`, one more for each output, f32 [..., n], that is added.
/// Outputs: f32 [..., n], one per matrix. Activations are quantised to int8, symmetric, per row and
/// 32 along k (kernels/quantized_linear.hpp).
class QuantizedLinear : public ov::op::Op {
public:
    OPENVINO_OP("QuantizedLinear", "pagewheel")

    /// Shared with the copies of the node that the plugin makes; never changed.
    using Weights = std::shared_ptr<const kernels::PackedLinear>;

    struct Attributes {
        std::vector<Weights> weights;  ///< at least one; equal k
        bool residual = false;
    };

    QuantizedLinear() = default;
    QuantizedLinear(const ov::OutputVector& inputs, Attributes attributes);

    void validate_and_infer_types() override;
    std::shared_ptr<ov::Node> clone_with_new_inputs(const ov::OutputVector& inputs) const override;
    bool visit_attributes(ov::AttributeVisitor& visitor) override;
    bool has_evaluate() const override { return true; }
    bool evaluate(ov::TensorVector& outputs, const ov::TensorVector& inputs) const override;

    const Attributes& attributes() const { return m_attributes; }

private:
    Attributes m_attributes;
    Isa m_isa = detected_isa();
};

}  // namespace pagewheel
