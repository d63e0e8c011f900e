// Linear layers with weights and activations in bf16, for calls of many rows. Internal.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/bf16_kernels.hpp"
#include "kernels/line_buffer.hpp"
#include "kernels/quantized_linear.hpp"
#include "kernels/quantized_linear_tile.hpp"

namespace pagewheel::kernels {

/// Packed rows of k in memory of the caller's.
inline PackedRows packed_rows(uint16_t* numbers, size_t k, size_t tile_rows) {
    const size_t k_blocks = (k + PackedLinear::k_block - 1) / PackedLinear::k_block;
    return {numbers, tile_rows, k_blocks * tile_rows * row_block};
}
inline size_t packed_numbers(size_t rows, size_t k, size_t tile_rows) {
    return (rows + tile_rows - 1) / tile_rows * packed_rows(nullptr, k, tile_rows).tile_stride;
}

/// Throws InvalidArgument where there are no products of bf16.
void check_bf16(const LinearKernels& kernels);

/// Rounds row `row` of a call, normalised first where that is asked for, to `out`.
void pack_row(const LinearKernels& kernels, const LinearInput& input, size_t k, size_t row,
              size_t tile_rows, uint16_t* out);

/// All tiles of gate and up, times `count` rows.
Bf16Block gated_block_of(const GatedMlp& mlp, const PackedRows& rows, size_t count,
                         const PackedRows& inner);

/// Runs a block with scratch memory of the calling thread's.
void run_block(const LinearKernels& kernels, Bf16Block block);

/// quantized_linear() and gated_mlp() with Activations::bf16, by kernels that have products of
/// bf16.
void bf16_linear(const LinearKernels& kernels, const LinearInput& input,
                 const LinearOutput* outputs, size_t count, const RotaryAngles& angles);
void bf16_mlp(const LinearKernels& kernels, const LinearInput& input, const GatedMlp& mlp);

}  // namespace pagewheel::kernels
