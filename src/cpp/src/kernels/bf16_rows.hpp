// The bf16 activations of a call. Internal to the linear layers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/bf16_kernels.hpp"
#include "kernels/quantized_rows.hpp"

namespace pagewheel::kernels {

/// Numbers that are written before they are read, on cache lines of their own.
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

}  // namespace pagewheel::kernels
