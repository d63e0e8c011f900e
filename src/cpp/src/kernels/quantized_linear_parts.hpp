// A call's quantised activations, and the pieces that its work is divided into. Internal to the
// linear layers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/line_buffer.hpp"
#include "kernels/quantized_linear.hpp"
#include "kernels/quantized_linear_tile.hpp"

namespace pagewheel::kernels {

/// The rows of a call, in blocks.
class QuantizedRows {
public:
    /// Room for `rows` rows of k; what was there is lost.
    void resize(size_t rows, size_t k, Activations activations) {
        place(m_own.resize(set_shape(rows, k, activations)));
    }
    /// Prepares for memory of the caller's, which place() names; returns how many lines it has.
    size_t set_shape(size_t rows, size_t k, Activations activations) {
        m_rows = rows;
        m_k_blocks = (k + PackedLinear::k_block - 1) / PackedLinear::k_block;
        m_wide = activations == Activations::int16;
        // Blocks alike: a small last one would be slow.
        const size_t count = (rows + max_block_rows - 1) / max_block_rows;
        m_block_rows = (rows + count - 1) / count;
        // Values, scale, sum and, of wide rows, magic.
        const size_t bytes = value_bytes() + (m_wide ? 3 : 2) * sizeof(float);
        return (rows * m_k_blocks * bytes + sizeof(CacheLine) - 1) / sizeof(CacheLine);
    }
    void place(CacheLine* lines) { m_lines = lines; }

    size_t blocks() const { return (m_rows + m_block_rows - 1) / m_block_rows; }
    /// First row of block i.
    size_t first(size_t i) const { return i * m_block_rows; }
    QuantizedBlock block(size_t i) {
        const size_t values = m_rows * m_k_blocks, at = first(i) * m_k_blocks;
        auto* bytes = reinterpret_cast<int8_t*>(m_lines);
        auto* scales = reinterpret_cast<float*>(bytes + values * value_bytes());
        const size_t rows = std::min(m_rows - first(i), m_block_rows);
        QuantizedBlock block{rows, rows, bytes + at * value_bytes(), scales + at,
                             scales + values + at};
        if (m_wide) block.magic = scales + 2 * values + at;
        return block;
    }
    /// Row i alone.
    QuantizedBlock row(size_t i) { return block(i / m_block_rows).part(i % m_block_rows, 1); }

private:
    size_t value_bytes() const { return m_wide ? wide_k_block_bytes : PackedLinear::k_block; }

    size_t m_rows = 0, m_k_blocks = 0, m_block_rows = max_block_rows;
    bool m_wide = false;
    CacheLine* m_lines = nullptr;
    LineBuffer<CacheLine> m_own;
};

constexpr size_t tiles_per_k_block = PackedLinear::k_block / PackedLinear::tile_rows;

/// A row of a call as it is multiplied: x itself, or gated or normalised in `out` [k].
const float* prepare_row(const LinearKernels& kernels, const LinearInput& input, size_t k,
                         size_t row, float* out);

/// Rows [first_row, first_row + block.rows) as the activations of a call.
void quantize_rows(const LinearKernels& kernels, const LinearInput& input, size_t k,
                   size_t first_row, const QuantizedBlock& block);

/// The tiles from `tile` on that the output's columns are of, times a block of rows.
void multiply_tiles(const LinearKernels& kernels, const PackedLinear& weights, size_t tile,
                    const QuantizedBlock& block, TileOutput output);

/// Tiles [begin, end) times block b of the rows.
void run_tiles(const LinearKernels& kernels, const LinearOutput& matrix, size_t begin, size_t end,
               QuantizedRows& rows, size_t b);

/// Whether finish_heads() has anything to do.
bool have_heads(const LinearOutput* outputs, size_t count);

/// Norms and rotates the heads of rows [first, first + rows) of the outputs.
void finish_heads(const LinearKernels& kernels, const LinearOutput* outputs, size_t count,
                  size_t first, size_t rows, const RotaryAngles& angles);

/// Tiles [begin, end) of gate and up, of whole k-blocks of what they give, times block b of the
/// rows, to the rows that `down` takes. A k-block's products stay in the L1 cache until they are
/// quantised.
void run_gated_item(const LinearKernels& kernels, const GatedMlp& mlp, QuantizedRows& rows,
                    size_t begin, size_t end, size_t b, QuantizedRows& inner);

/// A tile is read once for so many rows, in blocks of up to max_block_rows.
constexpr size_t max_streamed_rows = 32;

}  // namespace pagewheel::kernels
