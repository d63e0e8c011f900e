// Linear layers of packed weights: activations in int8, integer dot products.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/isa.hpp"
#include "kernels/packed_linear.hpp"

namespace pagewheel::kernels {

/// One matrix that multiplies the rows of a call.
struct LinearOutput {
    const PackedLinear* weights = nullptr;
    float* output = nullptr;          // [rows, n]
    const float* residual = nullptr;  // [rows, n] or null: added; may be `output`
};

/// output[m][n] = residual[m][n] + sum over k of w[n][k] * x'[m][k] for each of the matrices, whose
/// k are equal. x' is x in int8, symmetric, one scale per row and 32 along k:
/// x' = round(x * (127 / maximum)) * (maximum / 127) with the maximum of |x|, halves to even; a
/// maximum below 1e-30 counts as 0. Sums of 32 are exact; the rest is f32.
///
/// Runs in the calling thread's TBB arena. Values that are not finite spoil their row only.
void quantized_linear(const LinearOutput* outputs, size_t count, const float* x, size_t rows,
                      Isa isa);

}  // namespace pagewheel::kernels
