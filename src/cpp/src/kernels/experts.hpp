// A layer's routed experts: gated MLPs of which each row has a few, chosen by a router.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/activation_choice.hpp"
#include "kernels/quantized_linear.hpp"

namespace pagewheel::kernels {

struct LinearKernels;

/// One expert, a gated MLP. Biases are empty or as long as the outputs.
struct Expert {
    PackedLinear gate, up;  // [inner, k]
    PackedLinear down;      // [n, inner]
    std::vector<float> gate_bias, up_bias, down_bias;
};

/// All of a layer; equal in k, inner and n.
struct Experts {
    std::vector<Expert> experts;
    GateFunction function;  // without biases
};

/// Throws InvalidArgument for no experts, and for some that do not fit each other.
void check_experts(const Experts& experts);

/// Which experts a row has, and what their outputs are multiplied with.
struct Routing {
    size_t active = 0;                 // of each row
    const uint32_t* chosen = nullptr;  // [rows, active]
    const float* weights = nullptr;    // [rows, active]
};

/// output = residual + sum over a row's experts of weight * (down(function(gate(x), up(x))) +
/// bias), taken in the order of the experts' numbers. `output` and `residual`, which may be null or
/// `output`, are [rows, n].
///
/// Each expert multiplies the rows that chose it together, and reads its weights once for up to
/// eight of them, or in bf16 for all. Activations are those of choose_expert_activations(). So with
/// an explicit precision, or with as many rows as automatic_activations() gives int16, a row's
/// output does not depend on the others. Activations of the input mean nothing. Throws
/// InvalidArgument for an expert that there is not.
void routed_experts(const LinearInput& input, const Experts& experts, const Routing& routing,
                    ActivationPrecision precision, float* output, const float* residual, Isa isa);

/// The same by these kernels, with the activations for an expert of so many rows.
void routed_experts_by(const LinearKernels& kernels, const LinearInput& input,
                       const Experts& experts, const Routing& routing,
                       const std::function<Activations(size_t rows)>& activations, float* output,
                       const float* residual);

}  // namespace pagewheel::kernels
