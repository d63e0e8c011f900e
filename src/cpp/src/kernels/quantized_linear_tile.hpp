// What quantized_linear.cpp, which divides the work, and the variants, which do it, say to each
// other. Internal to the kernels.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/packed_linear.hpp"

namespace pagewheel::kernels {

/// A group of activations whose largest magnitude is below this counts as zero.
constexpr float smallest_maximum = 1e-30f;

/// Rows of activations that a tile of weights is multiplied with at once: the last block has fewer.
/// Their sums and a chunk's weights fit the registers; more gained nothing.
constexpr size_t max_block_rows = 8;

/// Activations of a block of rows in int8, chunk after chunk.
struct QuantizedBlock {
    size_t rows = 0;           // 1..8
    int8_t* values = nullptr;  // [chunks][rows][32], -127..127; zeros past k
    float* scales = nullptr;   // [chunks][rows]: x' = value * scale
    float* sums = nullptr;     // [chunks][rows]: of x'
};

/// Where the products of a tile and a block go.
struct TileOutput {
    float* output = nullptr;         // [rows, stride]
    const float* initial = nullptr;  // [rows, stride] or null: what the products are added to
    size_t stride = 0;
    size_t columns = PackedLinear::tile_rows;  // of the tile's 16, those that exist
};

/// The calls of one ISA.
struct LinearVariant {
    /// Quantises columns [32 * chunk_begin, k) of x [block.rows, stride], of which `x` is the first
    /// row's column 32 * chunk_begin.
    void (*quantize)(const float* x, size_t stride, size_t chunk_begin, size_t k,
                     const QuantizedBlock& block);
    void (*multiply)(const PackedLinear& weights, const uint8_t* tile, const QuantizedBlock& block,
                     const TileOutput& output);
    /// out[i] = gamma[i] * x[i] / sqrt(mean(x^2) + epsilon), i < k.
    void (*rms_norm)(const float* x, const float* gamma, float epsilon, size_t k, float* out);
    /// gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i], i < n.
    void (*swiglu)(float* gate, const float* up, size_t n);
};

const LinearVariant& linear_reference();
const LinearVariant& linear_avx2();
const LinearVariant& linear_avx512();

}  // namespace pagewheel::kernels
