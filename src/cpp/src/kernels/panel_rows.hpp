// The bf16 activations of a call. Internal to the linear layers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/panels.hpp"
#include "kernels/quantized_rows.hpp"

namespace pagewheel::kernels {

/// Numbers of bf16 or f32 that are written before they are read, on cache lines of their own.
template <class T>
class LineBuffer {
public:
    /// Room for `size` numbers; what was there is lost.
    T* resize(size_t size) {
        const size_t lines = (size * sizeof(T) + sizeof(CacheLine) - 1) / sizeof(CacheLine);
        if (m_lines.size() < lines) {
            m_lines = {};  // nothing is kept, so nothing is there twice
            m_lines.resize(lines);
        }
        return data();
    }
    T* data() { return reinterpret_cast<T*>(m_lines.data()); }

private:
    std::vector<CacheLine> m_lines;
};

/// Packed rows (panels.hpp), in tiles.
class PanelRows {
public:
    void resize(size_t rows, size_t k, size_t tile_rows) {
        m_tile_rows = tile_rows;
        m_tile_stride =
            (k + PackedLinear::k_block - 1) / PackedLinear::k_block * tile_rows * row_block;
        m_numbers.resize((rows + tile_rows - 1) / tile_rows * m_tile_stride);
    }

    size_t tile_rows() const { return m_tile_rows; }
    size_t tile_stride() const { return m_tile_stride; }
    /// K-block `c` of a row.
    uint16_t* at(size_t row, size_t c) {
        return m_numbers.data() + row / m_tile_rows * m_tile_stride +
               (c * m_tile_rows + row % m_tile_rows) * row_block;
    }

private:
    size_t m_tile_rows = 1, m_tile_stride = 0;
    LineBuffer<uint16_t> m_numbers;
};

}  // namespace pagewheel::kernels
