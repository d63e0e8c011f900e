#include <cmath>

#include "kernels/isa/scalar/packed_values.hpp"
#include "kernels/quantized_linear_tile.hpp"

namespace pagewheel::kernels {
namespace {

constexpr size_t k_block = PackedLinear::k_block;
constexpr size_t tile_rows = PackedLinear::tile_rows;

void quantize(const float* x, size_t stride, size_t k_block_begin, size_t k,
              const QuantizedBlock& block) {
    for (size_t c = k_block_begin; c * k_block < k; ++c)
        for (size_t r = 0; r < block.rows; ++r) {
            const float* in = x + r * stride + (c - k_block_begin) * k_block;
            const size_t size = std::min(k_block, k - c * k_block);
            const size_t at = c * block.stride + r;
            int8_t* out = block.values + at * k_block;
            float highest = 0, lowest = 0;
            for (size_t i = 0; i < size; ++i) {
                highest = std::max(highest, in[i]);
                lowest = std::min(lowest, in[i]);
            }
            const float steps = steps_of(block);
            const float maximum = scaling_maximum(block, highest, lowest);
            const float inverse = maximum < smallest_maximum ? 0.0f : steps / maximum;
            const float scale = maximum < smallest_maximum ? 0.0f : maximum / steps;
            int sum = 0;
            for (size_t i = 0; i < k_block; ++i) {
                const float rounded = i < size ? std::nearbyint(in[i] * inverse) : 0.0f;
                const int value = std::abs(rounded) <= steps ? int(rounded) : 0;  // 0 for NaN
                sum += value;
                // The nearest multiple of 256, halves up, and what is left.
                const int high = block.low_values ? (value + 128) >> 8 : value;
                out[i] = int8_t(high);
                if (block.low_values)
                    block.low_values[at * k_block + i] = int8_t(value - 256 * high);
            }
            block.scales[at] = scale;
            block.sums[at] = scale * float(sum);
        }
}

void multiply(const PackedLinear& weights, const uint8_t* in, const QuantizedBlock& block,
              const TileOutput& output) {
    float sums[max_block_rows][tile_rows] = {};
    float scales[tile_rows], minima[tile_rows];
    for (size_t c = 0; c < weights.k_blocks(); ++c) {
        if (c % weights.k_blocks_per_group() == 0) in = read_group(weights, in, scales, minima);
        for (size_t r = 0; r < block.rows; ++r) {
            const size_t at = c * block.stride + r;
            for (size_t n = 0; n < output.columns; ++n) {
                int dot = 0;
                for (size_t k = 0; k < k_block; ++k) {
                    int x = block.values[at * k_block + k];
                    if (block.low_values) x = 256 * x + block.low_values[at * k_block + k];
                    dot += value_at(weights, in, n, k) * x;
                }
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

void rotate(float* x, size_t heads, size_t size, const float* cos, const float* sin) {
    const size_t half = size / 2;
    for (float* head = x; head != x + heads * size; head += size)
        for (size_t i = 0; i < half; ++i) {
            const float a = head[i], b = head[half + i];
            head[i] = a * cos[i] - b * sin[i];
            head[half + i] = b * cos[half + i] + a * sin[half + i];
        }
}

}  // namespace

LinearKernels linear_reference() {
    return {quantize, multiply, nullptr, rms_norm, swiglu, rotate, panel_reference()};
}

}  // namespace pagewheel::kernels
