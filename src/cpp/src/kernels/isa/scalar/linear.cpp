// Linear layers as they are defined, with quantised activations and in bf16.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/bf16_kernels.hpp"
#include "kernels/half.hpp"
#include "kernels/packed_linear.hpp"
#include "kernels/quantized_linear_tile.hpp"

namespace pagewheel::kernels {
namespace {

// ---- Single numbers of packed weights

float read(const uint8_t* values, size_t i, PackedLinear::Scale form) {
    if (form == PackedLinear::Scale::e8m0)
        return values[i] == 0 ? 0 : std::ldexp(1.0f, int(values[i]) - 127);
    if (form == PackedLinear::Scale::f16) {
        uint16_t bits;
        std::memcpy(&bits, values + i * sizeof bits, sizeof bits);
        return float_of_half(bits);
    }
    float value;
    std::memcpy(&value, values + i * sizeof value, sizeof value);
    return value;
}

/// Reads a group's scales and minima; returns where its k-blocks begin.
const uint8_t* read_group(const PackedLinear& weights, const uint8_t* in, float* scales,
                          float* minima) {
    using Offset = PackedLinear::Offset;
    using Scale = PackedLinear::Scale;
    const uint8_t* offsets = in + weights.scale_bytes();
    for (size_t n = 0; n < PackedLinear::tile_rows; ++n) {
        scales[n] = read(in, n, weights.scale());
        switch (weights.offset()) {
            case Offset::common:
                minima[n] = -weights.common_zero_point() * scales[n];
                break;
            case Offset::u8_zero_point:
                minima[n] = -float(offsets[n]) * scales[n];
                break;
            case Offset::f16_minimum:
                minima[n] = read(offsets, n, Scale::f16);
                break;
            case Offset::f32_minimum:
                minima[n] = read(offsets, n, Scale::f32);
                break;
        }
    }
    return offsets + weights.offset_bytes();
}

// ---- Quantised activations

constexpr size_t k_block = PackedLinear::k_block;
constexpr size_t tile_rows = PackedLinear::tile_rows;

uint32_t magnitude_bits(const float* x, size_t size) {
    uint32_t largest = 0;
    for (size_t i = 0; i < size; ++i) largest = std::max(largest, bits_of_float(x[i]) & 0x7fffffff);
    return largest;
}

/// The place i of a k-block of 32 values, whose bytes begin at `values`.
int wide_value(const int8_t* values, size_t i) {
    return 16 * values[i] + values[16 + i];
}

void store_wide(const int (&x)[k_block], int8_t* out) {
    for (size_t i = 0; i < 16; ++i) {
        const int x1 = x[i], x2 = x[16 + i];
        const int lowest = (x2 - 112) >> 4;  // 16 * 15 more leaves -128 of x2
        const int shared = lowest + ((x1 - lowest) & 15);
        out[i] = int8_t((x1 - shared) >> 4);
        out[16 + i] = int8_t(shared);
        out[32 + i] = int8_t(x2 - 16 * shared);
    }
}

void quantize(const float* x, size_t stride, size_t k_block_begin, size_t k,
              const QuantizedBlock& block) {
    for (size_t c = k_block_begin; c * k_block < k; ++c)
        for (size_t r = 0; r < block.rows; ++r) {
            const float* in = x + r * stride + (c - k_block_begin) * k_block;
            const size_t size = std::min(k_block, k - c * k_block);
            const size_t at = c * block.stride + r;
            const uint32_t largest = magnitude_bits(in, size);
            const auto [factor, scale] =
                block.wide() ? wide_scaling(largest) : byte_scaling(largest);
            const float steps = block.wide() ? wide_activation_steps : activation_steps;
            int values[k_block] = {}, sum = 0;
            for (size_t i = 0; i < size; ++i) {
                const float rounded = std::nearbyint(in[i] * factor);
                if (std::abs(rounded) <= steps) values[i] = int(rounded);  // 0 for NaN
                sum += values[i];
            }
            int8_t* out = block.values + at * block.value_bytes();
            if (block.wide()) {
                store_wide(values, out);
                block.magic[at] = scale * float_of_integers;
            } else {
                std::copy(values, values + k_block, out);
            }
            block.scales[at] = scale;
            block.sums[at] = scale * float(sum);
        }
}

void multiply(const PackedLinear& weights, const uint8_t* in, const QuantizedBlock& block,
              const TileOutput& output) {
    if (weights.is_bf16()) refuse_weights_of_bf16();
    float sums[max_block_rows][tile_rows] = {};
    float scales[tile_rows], minima[tile_rows];
    for (size_t c = 0; c < weights.k_blocks(); ++c) {
        if (c % weights.k_blocks_per_group() == 0) in = read_group(weights, in, scales, minima);
        for (size_t r = 0; r < block.rows; ++r) {
            const size_t at = c * block.stride + r;
            const int8_t* values = block.values + at * block.value_bytes();
            for (size_t n = 0; n < output.columns; ++n) {
                int dot = 0;
                for (size_t k = 0; k < k_block; ++k)
                    dot += weights.value_at(in, n, k) *
                           (block.wide() ? wide_value(values, k) : values[k]);
                sums[r][n] +=
                    scales[n] * block.scales[at] * float(dot) + minima[n] * block.sums[at];
            }
        }
        in += weights.k_block_bytes();
    }
    for (size_t r = 0; r < block.rows; ++r)
        for (size_t n = 0; n < output.columns; ++n) {
            const size_t at = r * output.stride + n;
            output.output[at] = sums[r][n] + (output.initial ? output.initial[at] : 0.0f);
        }
}

void rms_norm(const float* x, const float* gamma, float epsilon, size_t k, float* out) {
    double squares = 0;
    for (size_t i = 0; i < k; ++i) squares += double(x[i]) * double(x[i]);
    const float factor = 1.0f / std::sqrt(float(squares / double(k)) + epsilon);
    for (size_t i = 0; i < k; ++i) out[i] = gamma[i] * (x[i] * factor);
}

void swiglu(float* gate, const float* up, size_t n) {
    for (size_t i = 0; i < n; ++i) gate[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
}

void gate(const float* x, const float* gate, size_t n, float* out) {
    for (size_t i = 0; i < n; ++i) out[i] = x[i] / (1.0f + std::exp(-gate[i]));
}

void inner_products(const float* x, const float* rows, size_t k, size_t count, float* out) {
    for (size_t r = 0; r < count; ++r) {
        double sum = 0;
        for (size_t i = 0; i < k; ++i) sum += double(x[i]) * double(rows[r * k + i]);
        out[r] = float(sum);
    }
}

void rotate(float* head, size_t size, const float* cos, const float* sin) {
    const size_t half = size / 2;
    for (size_t i = 0; i < half; ++i) {
        const float a = head[i], b = head[half + i];
        head[i] = a * cos[i] - b * sin[i];
        head[half + i] = b * cos[half + i] + a * sin[half + i];
    }
}

// ---- bf16

constexpr size_t reference_tile_rows = 4;

void pack_row(const float* x, size_t k, size_t rows_of_tile, uint16_t* out) {
    for (size_t c = 0; c * k_block < k; ++c, out += rows_of_tile * row_block)
        for (size_t i = 0; i < k_block; ++i)
            out[i] = c * k_block + i < k ? bf16_of_float(x[c * k_block + i]) : uint16_t(0);
}

void unpack(const PackedLinear& weights, size_t tile, size_t begin, size_t end, uint16_t* out) {
    if (weights.is_bf16()) {
        std::memcpy(out, weights.numbers(tile, begin), (end - begin) * tile_block * sizeof *out);
        return;
    }
    float scales[tile_rows], minima[tile_rows];
    const uint8_t* in = weights.tile(tile);
    for (size_t c = 0; c < end; ++c) {
        if (c % weights.k_blocks_per_group() == 0) in = read_group(weights, in, scales, minima);
        for (size_t k = 0; c >= begin && k < k_block; ++k)
            for (size_t n = 0; n < tile_rows; ++n) {
                const auto value = float(weights.value_at(in, n, k));
                out[(k / 2 * tile_rows + n) * 2 + k % 2] =
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
                   float_of_bf16(weights[c * tile_block + k / 2 * 2 * tile_rows + k % 2]);
    return sum;
}

void multiply(const Bf16Product& product) {
    const Bf16Output& out = product.output;
    for (size_t r = 0; r < product.row_count; ++r) {
        const uint16_t* row = product.rows + r / reference_tile_rows * product.tile_stride +
                              r % reference_tile_rows * row_block;
        for (size_t n = 0; n < out.columns; ++n) {
            const uint16_t* weights =
                product.weights + n / tile_rows * product.weight_stride + n % tile_rows * 2;
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

LinearKernels linear_reference() {
    return {quantize,       multiply,        1, rms_norm, swiglu, gate, rotate,
            inner_products, bf16_reference()};
}

}  // namespace pagewheel::kernels
