#include "kernels/quantized_linear_parts.hpp"

#include <algorithm>
#include <vector>

namespace pagewheel::kernels {
namespace {

constexpr size_t k_block = PackedLinear::k_block;
constexpr size_t tile_rows = PackedLinear::tile_rows;

/// Adds the biases and brings gate and up to where silu(gate) * up is the function of both.
void prepare_gate(const GateFunction& function, size_t column, size_t count, float* gate,
                  float* up) {
    if (function.gate_bias)
        for (size_t i = 0; i < count; ++i) gate[i] += function.gate_bias[column + i];
    if (function.up_bias)
        for (size_t i = 0; i < count; ++i) up[i] += function.up_bias[column + i];
    switch (function.kind) {
        case GateFunction::Kind::silu:
            return;
        case GateFunction::Kind::clamped_silu:
            for (size_t i = 0; i < count; ++i) {
                gate[i] = std::min(gate[i], function.limit) * function.alpha;
                const float u = std::min(std::max(up[i], -function.limit), function.limit);
                up[i] = (u + 1.0f) / function.alpha;
            }
            return;
        case GateFunction::Kind::gelu_tanh:
            // gelu(g) is g * sigmoid(y) with this y = g * slope, hence silu(y) / slope.
            for (size_t i = 0; i < count; ++i) {
                const float slope = 1.5957691216f * (1.0f + 0.044715f * gate[i] * gate[i]);
                gate[i] *= slope;
                up[i] /= slope;
            }
            return;
    }
    __builtin_unreachable();
}

bool is_plain(const GateFunction& function) {
    return function.kind == GateFunction::Kind::silu && !function.gate_bias && !function.up_bias;
}

}  // namespace

void multiply_tile(const LinearKernels& kernels, const PackedLinear& weights, size_t tile,
                   const QuantizedBlock& block, const TileOutput& output) {
    const auto product = block.corrections ? kernels.multiply_pairs : kernels.multiply;
    product(weights, weights.tile(tile), block, output);
}

void apply_gate(const LinearKernels& kernels, const GateFunction& function, size_t column,
                size_t count, float* gate, float* up) {
    prepare_gate(function, column, count, gate, up);
    kernels.swiglu(gate, up, count);
}

void quantize_rows(const LinearKernels& kernels, const LinearInput& input, size_t k,
                   size_t first_row, const QuantizedBlock& block) {
    const float* x = input.x + first_row * k;
    if (!input.gamma) return kernels.quantize(x, k, 0, k, block);
    static thread_local std::vector<float> normed;
    normed.resize(max_block_rows * k);
    for (size_t first = 0; first < block.rows; first += max_block_rows) {
        const QuantizedBlock part = block.part(first, std::min(max_block_rows, block.rows - first));
        for (size_t r = 0; r < part.rows; ++r)
            kernels.rms_norm(x + (first + r) * k, input.gamma, input.epsilon, k,
                             normed.data() + r * k);
        kernels.quantize(normed.data(), k, 0, k, part);
    }
}

void run_tile(const LinearKernels& kernels, const LinearOutput& matrix, size_t tile,
              QuantizedRows& rows, size_t b) {
    const PackedLinear& weights = *matrix.weights;
    const size_t n = weights.n(), column = tile * tile_rows;
    const size_t at = rows.first(b) * n + column;
    TileOutput output;
    output.output = matrix.output + at;
    output.initial = matrix.residual ? matrix.residual + at : nullptr;
    output.stride = n;
    output.columns = std::min(tile_rows, n - column);
    multiply_tile(kernels, weights, tile, rows.block(b), output);
}

void rotate_rows(const LinearKernels& kernels, const LinearOutput* outputs, size_t count,
                 size_t first, size_t rows, const RotaryAngles& angles) {
    const size_t size = angles.size;
    for (size_t i = 0; i < count; ++i) {
        const size_t n = outputs[i].weights->n();
        for (size_t row = first; outputs[i].rotated && row < first + rows; ++row)
            kernels.rotate(outputs[i].output + row * n, n / size, size, angles.cos + row * size,
                           angles.sin + row * size);
    }
}

void run_gated_item(const LinearKernels& kernels, const GatedMlp& mlp, QuantizedRows& rows,
                    size_t begin, size_t end, size_t b, QuantizedRows& inner) {
    alignas(64) static thread_local float gates[max_paired_rows * k_block];
    alignas(64) static thread_local float ups[max_paired_rows * k_block];
    const QuantizedBlock block = rows.block(b);
    const size_t n = mlp.gate->n();
    for (size_t first = begin; first < end; first += tiles_per_k_block) {
        for (size_t tile = first; tile < std::min(first + tiles_per_k_block, end); ++tile) {
            TileOutput output;
            output.stride = k_block;
            output.output = gates + (tile - first) * tile_rows;
            multiply_tile(kernels, *mlp.gate, tile, block, output);
            output.output = ups + (tile - first) * tile_rows;
            multiply_tile(kernels, *mlp.up, tile, block, output);
        }
        const size_t c = first / tiles_per_k_block, end_column = std::min(n, (c + 1) * k_block);
        if (!is_plain(mlp.function))
            for (size_t r = 0; r < block.rows; ++r)
                prepare_gate(mlp.function, c * k_block, end_column - c * k_block,
                             gates + r * k_block, ups + r * k_block);
        kernels.swiglu(gates, ups, block.rows * k_block);
        kernels.quantize(gates, k_block, c, end_column, inner.block(b));
    }
}

}  // namespace pagewheel::kernels
