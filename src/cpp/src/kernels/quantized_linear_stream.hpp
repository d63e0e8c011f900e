// Linear layers of few rows, for which reading the weights is all that counts. Internal.
#pragma once

#include "kernels/quantized_linear.hpp"
#include "kernels/quantized_linear_tile.hpp"

namespace pagewheel::kernels {

/// A tile is read once for so many rows, in blocks of up to max_block_rows.
constexpr size_t max_streamed_rows = 32;

/// quantized_linear() and gated_mlp() for up to max_streamed_rows rows: each thread reads its range
/// of a matrix from one end to the other.
void stream_linear(const LinearKernels& kernels, const LinearInput& input,
                   const LinearOutput* outputs, size_t count, const RotaryAngles& angles);
void stream_mlp(const LinearKernels& kernels, const LinearInput& input, const GatedMlp& mlp);

}  // namespace pagewheel::kernels
