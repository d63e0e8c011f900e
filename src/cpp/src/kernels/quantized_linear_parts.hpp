// The pieces that a linear layer's work is divided into. Internal to the linear layers.
#pragma once

#include <cstddef>

#include "kernels/quantized_linear.hpp"
#include "kernels/quantized_linear_tile.hpp"
#include "kernels/quantized_rows.hpp"

namespace pagewheel::kernels {

constexpr size_t tiles_per_k_block = PackedLinear::k_block / PackedLinear::tile_rows;

/// Rows [first_row, first_row + block.rows) as the activations of a call, normalised first where
/// that is asked for.
void quantize_rows(const LinearKernels& kernels, const LinearInput& input, size_t k,
                   size_t first_row, const QuantizedBlock& block);

/// One tile times a block of rows.
void multiply_tile(const LinearKernels& kernels, const PackedLinear& weights, size_t tile,
                   const QuantizedBlock& block, const TileOutput& output);

/// One tile times block b of the rows.
void run_tile(const LinearKernels& kernels, const LinearOutput& matrix, size_t tile,
              QuantizedRows& rows, size_t b);

/// Rotates rows [first, first + rows) of the outputs that are to be.
void rotate_rows(const LinearKernels& kernels, const LinearOutput* outputs, size_t count,
                 size_t first, size_t rows, const RotaryAngles& angles);

/// Tiles [begin, end) of gate and up, of whole k-blocks of what they give, times block b of the
/// rows, to the rows that `down` takes. A k-block's products stay in the L1 cache until they are
/// quantised.
void run_gated_item(const LinearKernels& kernels, const GatedMlp& mlp, QuantizedRows& rows,
                    size_t begin, size_t end, size_t b, QuantizedRows& inner);

}  // namespace pagewheel::kernels
