// Linear layers in bf16 as they are defined.
#include "kernels/bf16_kernels.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/bf16.hpp"
#include "kernels/isa/scalar/packed_values.hpp"

namespace pagewheel::kernels {
namespace {

constexpr size_t k_block = PackedLinear::k_block;
constexpr size_t outputs = PackedLinear::tile_rows;
constexpr size_t reference_tile_rows = 4;

void pack_row(const float* x, size_t k, size_t tile_rows, uint16_t* out) {
    for (size_t c = 0; c * k_block < k; ++c, out += tile_rows * row_block)
        for (size_t i = 0; i < k_block; ++i)
            out[i] = c * k_block + i < k ? bf16_of_float(x[c * k_block + i]) : uint16_t(0);
}

void unpack(const PackedLinear& weights, size_t tile, size_t begin, size_t end, uint16_t* out) {
    float scales[outputs], minima[outputs];
    const uint8_t* in = weights.tile(tile);
    for (size_t c = 0; c < end; ++c) {
        if (c % weights.k_blocks_per_group() == 0) in = read_group(weights, in, scales, minima);
        for (size_t k = 0; c >= begin && k < k_block; ++k)
            for (size_t n = 0; n < outputs; ++n) {
                const auto value = float(value_at(weights, in, n, k));
                out[(k / 2 * outputs + n) * 2 + k % 2] =
                    bf16_of_float(std::fma(value, scales[n], minima[n]));
            }
        if (c >= begin) out += tile_block;
        in += weights.k_block_bytes();
    }
}

/// One row times a range of one output of a tile.
float dot(const uint16_t* row, const uint16_t* weights, size_t k_blocks, float sum) {
    for (size_t c = 0; c < k_blocks; ++c)
        for (size_t k = 0; k < k_block; ++k)
            sum += float_of_bf16(row[c * reference_tile_rows * row_block + k]) *
                   float_of_bf16(weights[c * tile_block + k / 2 * 2 * outputs + k % 2]);
    return sum;
}

void multiply(const Bf16Product& product) {
    const Bf16Output& out = product.output;
    for (size_t r = 0; r < product.row_count; ++r) {
        const uint16_t* row = product.rows + r / reference_tile_rows * product.tile_stride +
                              r % reference_tile_rows * row_block;
        for (size_t n = 0; n < out.columns; ++n) {
            const uint16_t* weights =
                product.weights + n / outputs * product.k_blocks * tile_block + n % outputs * 2;
            const float initial = out.initial ? out.initial[r * out.initial_stride + n] : 0.0f;
            out.output[r * out.output_stride + n] = dot(row, weights, product.k_blocks, initial);
        }
    }
}

}  // namespace

Bf16Kernels bf16_reference() {
    Bf16Kernels kernels;
    kernels.tile_rows = reference_tile_rows;
    kernels.item_tiles = 4;
    kernels.most_rows = 512;
    kernels.least_own_rows = 40;
    kernels.range_k_blocks = 3;
    kernels.pack_row = pack_row;
    kernels.unpack = unpack;
    kernels.run = run_by_groups;
    kernels.multiply = multiply;
    return kernels;
}

}  // namespace pagewheel::kernels
