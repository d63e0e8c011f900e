// Linear layers of compressed weights, as an OpenVINO operation on the CPU.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "kernels/activation_choice.hpp"
#include "kernels/isa.hpp"
#include "kernels/quantized_linear.hpp"
#include "ops/native_op.hpp"

namespace pagewheel {

/// Shared with the copies of a node that the plugin makes; never changed.
using SharedWeights = std::shared_ptr<const kernels::PackedLinear>;

/// A root mean square norm over the last dimension; none if gamma is null.
struct RmsNorm {
    std::shared_ptr<const std::vector<float>> gamma;
    float epsilon = 0;

    /// The input of a call; throws InvalidArgument if rows are not of size k.
    kernels::LinearInput applied_to(const Rows& x, size_t k) const;
};

/// Multiplies one input by one or several matrices: q, k and v, or gate and up, at once.
///
/// Inputs: x f32 [..., k]; if `gated`, a gate alike, and what counts is x * sigmoid(gate); with
/// `residual`, one more for each output, f32 [..., n], that is added; else, where heads are
/// rotated, cosines and sines, f32 [..., rotary_size()], of as many rows as x has. Outputs: f32
/// [..., n], one per matrix. With a norm, it is x's that is multiplied. Activations are quantised
/// per row and 32 along k (kernels/quantized_linear.hpp).
class QuantizedLinear : public NativeOp {
public:
    OPENVINO_OP("QuantizedLinear", "pagewheel")

    /// What becomes of an output's heads.
    struct Heads {
        size_t size = 0;  ///< 0: nothing
        RmsNorm norm;     ///< of each head
        /// So many values of a head, the first, are rotated then. In all outputs 0 or alike.
        size_t rotated = 0;
    };

    struct Attributes {
        std::vector<SharedWeights> weights;  ///< at least one; equal k
        RmsNorm norm;
        kernels::ActivationPrecision activations = kernels::ActivationPrecision::automatic;
        bool residual = false;
        bool gated = false;
        std::vector<Heads> heads;  ///< of each output; empty: nothing becomes of any

        /// How many values of a head are rotated; 0: none is.
        size_t rotary_size() const;
    };

    QuantizedLinear() = default;
    QuantizedLinear(const ov::OutputVector& inputs, Attributes attributes);

    void validate_and_infer_types() override;
    std::shared_ptr<ov::Node> clone_with_new_inputs(const ov::OutputVector& inputs) const override;
    bool visit_attributes(ov::AttributeVisitor& visitor) override;
    size_t num_row_inputs() const override { return get_input_size(); }
    size_t output_width(size_t output) const override;
    void run(const NativeInputs& inputs, float* const* outputs) const override;

    const Attributes& attributes() const { return m_attributes; }

private:
    Attributes m_attributes;
    Isa m_isa = detected_isa();
};

/// The gated multilayer perceptron of a transformer's layer in one:
/// residual + down(silu(gate(x)) * up(x)), with a norm on x where there is one.
///
/// Inputs: x f32 [..., k]; with `residual`, f32 [..., n]. Output: f32 [..., n].
class GatedMlp : public NativeOp {
public:
    OPENVINO_OP("GatedMlp", "pagewheel")

    struct Attributes {
        SharedWeights gate, up;  ///< [inner, k]
        SharedWeights down;      ///< [n, inner]
        RmsNorm norm;
        kernels::ActivationPrecision activations = kernels::ActivationPrecision::automatic;
        bool residual = false;
    };

    GatedMlp() = default;
    GatedMlp(const ov::OutputVector& inputs, Attributes attributes);

    void validate_and_infer_types() override;
    std::shared_ptr<ov::Node> clone_with_new_inputs(const ov::OutputVector& inputs) const override;
    bool visit_attributes(ov::AttributeVisitor& visitor) override;
    size_t num_row_inputs() const override { return get_input_size(); }
    size_t output_width(size_t output) const override;
    void run(const NativeInputs& inputs, float* const* outputs) const override;

    const Attributes& attributes() const { return m_attributes; }

private:
    Attributes m_attributes;
    Isa m_isa = detected_isa();
};

}  // namespace pagewheel
