// Linear layers of compressed weights, as an OpenVINO operation on the CPU.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "kernels/activation_choice.hpp"
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

/// What becomes of an output's heads.
struct LinearHeads {
    size_t size = 0;  ///< 0: nothing
    RmsNorm norm;     ///< of each head
    /// So many values of a head, the first, are rotated then. In all outputs 0 or alike.
    size_t rotated = 0;
};

struct LinearAttributes {
    std::vector<SharedWeights> weights;  ///< at least one; equal k
    RmsNorm norm;
    kernels::ActivationPrecision activations = kernels::ActivationPrecision::automatic;
    bool residual = false;
    bool gated = false;
    std::vector<LinearHeads> heads;  ///< of each output; empty: nothing becomes of any

    /// How many values of a head are rotated; 0: none is.
    size_t rotary_size() const;
};

/// Multiplies one input by one or several matrices: q, k and v, or gate and up, at once.
///
/// Inputs: x f32 [..., k]; if `gated`, a gate alike, and what counts is x * sigmoid(gate); with
/// `residual`, one more for each output, f32 [..., n], that is added; else, where heads are
/// rotated, cosines and sines, f32 [..., rotary_size()], of as many rows as x has. Outputs: f32
/// [..., n], one per matrix. With a norm, it is x's that is multiplied. Activations are quantised
/// per row and 32 along k (kernels/quantized_linear.hpp).
class QuantizedLinear : public AttributedOp<QuantizedLinear, LinearAttributes> {
public:
    OPENVINO_OP("QuantizedLinear", "pagewheel")

    using Heads = LinearHeads;

    QuantizedLinear(const ov::OutputVector& inputs, Attributes attributes)
        : Base(inputs, std::move(attributes)) {
        constructor_validate_and_infer_types();
    }

    void validate_and_infer_types() override;
    bool visit_attributes(ov::AttributeVisitor& visitor) override;
    size_t num_row_inputs() const override { return get_input_size(); }
    size_t output_width(size_t output) const override;
    void run(const NativeInputs& inputs, float* const* outputs) const override;
};

struct GatedMlpAttributes {
    SharedWeights gate, up;  ///< [inner, k]
    SharedWeights down;      ///< [n, inner]
    RmsNorm norm;
    kernels::ActivationPrecision activations = kernels::ActivationPrecision::automatic;
    bool residual = false;
};

/// The gated multilayer perceptron of a transformer's layer in one:
/// residual + down(silu(gate(x)) * up(x)), with a norm on x where there is one.
///
/// Inputs: x f32 [..., k]; with `residual`, f32 [..., n]. Output: f32 [..., n].
class GatedMlp : public AttributedOp<GatedMlp, GatedMlpAttributes> {
public:
    OPENVINO_OP("GatedMlp", "pagewheel")

    GatedMlp(const ov::OutputVector& inputs, Attributes attributes)
        : Base(inputs, std::move(attributes)) {
        constructor_validate_and_infer_types();
    }

    void validate_and_infer_types() override;
    bool visit_attributes(ov::AttributeVisitor& visitor) override;
    size_t num_row_inputs() const override { return get_input_size(); }
    size_t output_width(size_t output) const override;
    void run(const NativeInputs& inputs, float* const* outputs) const override;
};

}  // namespace pagewheel
