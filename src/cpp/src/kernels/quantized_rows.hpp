// The int8 activations of a call. Internal to the linear layers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/quantized_linear_tile.hpp"

namespace pagewheel::kernels {

struct alignas(64) CacheLine {
    uint8_t bytes[64];
};

/// The int8 rows of a call, in blocks.
class QuantizedRows {
public:
    /// Room for `rows` rows of k, in a form for paired products or not; what was there is lost.
    void resize(size_t rows, size_t k, bool paired) {
        m_rows = rows;
        m_k_blocks = (k + PackedLinear::k_block - 1) / PackedLinear::k_block;
        m_paired = paired;
        m_block_rows = max_block_rows;
        if (paired) {  // blocks alike: a small last one would be slow
            const size_t count = (rows + max_paired_rows - 1) / max_paired_rows;
            m_block_rows = (rows + count - 1) / count;
        }
        const size_t lines =
            (rows * m_k_blocks * (PackedLinear::k_block + 4 * sizeof(float)) + 63) / 64;
        if (m_lines.size() < lines) {
            m_lines = {};  // nothing is kept, so nothing is there twice
            m_lines.resize(lines);
        }
    }

    size_t blocks() const { return (m_rows + m_block_rows - 1) / m_block_rows; }
    /// First row of block i.
    size_t first(size_t i) const { return i * m_block_rows; }
    QuantizedBlock block(size_t i) {
        const size_t values = m_rows * m_k_blocks, at = first(i) * m_k_blocks;
        auto* bytes = reinterpret_cast<int8_t*>(m_lines.data());
        auto* scales = reinterpret_cast<float*>(bytes + values * PackedLinear::k_block);
        auto* corrections = reinterpret_cast<int32_t*>(scales + 2 * values);
        const size_t rows = std::min(m_rows - first(i), m_block_rows);
        QuantizedBlock block{rows, rows, bytes + at * PackedLinear::k_block, scales + at,
                             scales + values + at};
        if (m_paired) {
            block.corrections = corrections + at;
            block.moves = corrections + values + at;
        }
        return block;
    }

private:
    size_t m_rows = 0, m_k_blocks = 0, m_block_rows = max_block_rows;
    bool m_paired = false;
    std::vector<CacheLine> m_lines;
};

}  // namespace pagewheel::kernels
