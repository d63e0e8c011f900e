// Linear layers of packed weights: activations are rounded before they are multiplied.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/isa.hpp"
#include "kernels/packed_linear.hpp"

namespace pagewheel::kernels {

/// What activations are rounded to before they are multiplied.
enum class Activations {
    int8,   ///< 127 steps on either side of zero, one scale per row and 32 along k
    int16,  ///< 12 bits of it: up to 1,904 steps, one and a half times the multiplications
    bf16,   ///< and weights too; only where has_bf16_activations()
};

/// The rows of a call, x [rows, k]. With gamma [k], what counts is their root mean square norm:
/// gamma[i] * x[i] / sqrt(mean of the row's squares + epsilon).
struct LinearInput {
    const float* x = nullptr;
    size_t rows = 0;
    const float* gamma = nullptr;  // null: x as it is
    float epsilon = 0;
    Activations activations = Activations::int8;
    /// [rows, k] or null. Not null: in place of x counts x / (1 + exp(-gate)).
    const float* gate = nullptr;
};

/// What becomes of each head of an output: its root mean square norm as above, where there is
/// gamma, and then, where it is rotated, its first values are, by the call's RotaryAngles.
struct OutputHeads {
    size_t size = 0;               // the output has a multiple of it; 0: nothing
    const float* gamma = nullptr;  // [size] or null
    float epsilon = 0;
    bool rotated = false;
};

/// One matrix that multiplies the rows of a call.
struct LinearOutput {
    const PackedLinear* weights = nullptr;
    float* output = nullptr;          // [rows, n]
    const float* residual = nullptr;  // [rows, n] or null: added; may be `output`
    OutputHeads heads = {};
};

/// What the first `size` values of a row's heads are rotated by: with x = (a, b), halves of them,
/// cos = (c, d) and sin = (s, t), they become (a c - b s, b d + a t).
struct RotaryAngles {
    size_t size = 0;             // even, at most that of the heads
    const float* cos = nullptr;  // [rows, size]
    const float* sin = nullptr;  // [rows, size]
};

/// output[m][n] = residual[m][n] + sum over k of w[n][k] * x'[m][k] for each of the matrices, whose
/// k are equal. x' is x (or its norm) with one scale per row and 32 along k:
/// x' = round(x * (steps / maximum)) * (maximum / steps), halves to even, where maximum is that of
/// |x|. For int8 it is 127/239.9 of the distance from the highest (or 0) to the lowest (or 0), if
/// that is more. For int16 maximum / steps is the smallest power of two that gives no more than
/// 1,904 steps; a maximum of 2^114 or more counts as not finite. A maximum below 1e-30 counts as 0.
/// Sums of 32 are exact; the rest is f32.
///
/// With Activations::bf16 x' and w are rounded to the nearest bf16, and products are summed in f32.
/// Denormals may count as 0.
///
/// Runs in the calling thread's TBB arena; the numbers do not depend on how many threads it has.
/// Nor does a row's output depend on the other rows of the call, on how many they are, or on its
/// place. Values that are not finite spoil their row only. An output may be the input.
void quantized_linear(const LinearInput& input, const LinearOutput* outputs, size_t count, Isa isa,
                      const RotaryAngles& angles = {});

/// What becomes of the gate g and of u, what is beside it, once the biases are added:
///     silu            silu(g) * u
///     clamped_silu    g' * sigmoid(alpha * g') * (u' + 1), g' = min(g, limit), u' within +-limit
///     gelu_tanh       gelu(g) * u, by the hyperbolic tangent
struct GateFunction {
    enum class Kind { silu, clamped_silu, gelu_tanh };

    Kind kind = Kind::silu;
    float limit = 0, alpha = 1;
    const float* gate_bias = nullptr;  // [inner] or null
    const float* up_bias = nullptr;    // [inner] or null
};

/// The multilayer perceptron of a gated model:
/// output = residual + down(function(gate(x), up(x))), with x and down's input rounded as above.
struct GatedMlp {
    const PackedLinear* gate = nullptr;  // [inner, k]
    const PackedLinear* up = nullptr;    // [inner, k]
    const PackedLinear* down = nullptr;  // [n, inner]
    float* output = nullptr;             // [rows, n]
    const float* residual = nullptr;     // [rows, n] or null; may be `output`
    GateFunction function = {};
};

void gated_mlp(const LinearInput& input, const GatedMlp& mlp, Isa isa);

/// Whether calls may ask for Activations::bf16.
bool has_bf16_activations(Isa isa);

}  // namespace pagewheel::kernels
