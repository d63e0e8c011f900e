// Linear layers with weights and activations in bf16, for calls of many rows. Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/bf16_kernels.hpp"
#include "kernels/line_buffer.hpp"
#include "kernels/quantized_linear.hpp"
#include "kernels/quantized_linear_tile.hpp"

namespace pagewheel::kernels {

/// Memory for packed rows.
class Bf16Rows {
public:
    PackedRows resize(size_t rows, size_t k, size_t tile_rows) {
        const size_t k_blocks = (k + PackedLinear::k_block - 1) / PackedLinear::k_block;
        const size_t stride = k_blocks * tile_rows * row_block;
        return {m_numbers.resize((rows + tile_rows - 1) / tile_rows * stride), tile_rows, stride};
    }

private:
    LineBuffer<uint16_t> m_numbers;
};

/// quantized_linear() and gated_mlp() with Activations::bf16, by kernels that have products of
/// bf16.
void bf16_linear(const LinearKernels& kernels, const LinearInput& input,
                 const LinearOutput* outputs, size_t count, const RotaryAngles& angles);
void bf16_mlp(const LinearKernels& kernels, const LinearInput& input, const GatedMlp& mlp);

}  // namespace pagewheel::kernels
