// Divides linear layers into tiles of weights and blocks of rows for all threads.
#include "kernels/quantized_linear.hpp"

#include <algorithm>
#include <functional>
#include <vector>

#include "kernels/bf16_linear.hpp"
#include "kernels/kernels.hpp"
#include "kernels/quantized_linear_parts.hpp"
#include "kernels/team.hpp"

namespace pagewheel::kernels {
namespace {

constexpr size_t k_block = PackedLinear::k_block;
constexpr size_t tile_rows = PackedLinear::tile_rows;

/// Rows so few that each thread quantises all of them for itself instead of waiting for another.
constexpr size_t max_own_rows = 2;

bool overlaps(const LinearInput& input, size_t k, const float* output, size_t n) {
    const std::less<const float*> before;
    return before(input.x, output + input.rows * n) && before(output, input.x + input.rows * k);
}

/// The rows of a call: the calling thread's own copy, or one for all threads. An input that is
/// written over is quantised before anyone goes on.
class FewRows {
public:
    FewRows(const LinearKernels& kernels, const LinearInput& input, const LinearOutput* outputs,
            size_t count, size_t k, QuantizedRows& shared)
        : m_kernels(kernels),
          m_input(input),
          m_k(k),
          m_shared(shared),
          m_own(input.rows <= max_own_rows &&
                std::none_of(outputs, outputs + count, [&](const LinearOutput& one) {
                    return overlaps(input, k, one.output, one.weights->n());
                })) {
        if (!m_own) shared.resize(input.rows, k, input.activations);
    }
    void quantize_own() const {
        if (!m_own) return;
        own_rows().resize(m_input.rows, m_k, m_input.activations);
        quantize_rows(m_kernels, m_input, m_k, 0, own_rows().block(0));
    }
    size_t shared_rows() const { return m_own ? 0 : m_input.rows; }
    void quantize_shared(size_t row) const {
        quantize_rows(m_kernels, m_input, m_k, row, m_shared.row(row));
    }
    QuantizedRows& rows() const { return m_own ? own_rows() : m_shared; }

private:
    static QuantizedRows& own_rows() {
        static thread_local QuantizedRows rows;
        return rows;
    }

    const LinearKernels& m_kernels;
    const LinearInput& m_input;
    size_t m_k;
    QuantizedRows& m_shared;
    bool m_own;
};

/// Pair `i` of a matrix's tiles times all rows: after the first block it lies in the L1 or L2
/// cache.
void run_pair_of_all(const LinearKernels& kernels, const LinearOutput& matrix, size_t i,
                     QuantizedRows& rows) {
    const size_t end = std::min(2 * i + 2, matrix.weights->tiles());
    for (size_t b = 0; b < rows.blocks(); ++b) run_tiles(kernels, matrix, 2 * i, end, rows, b);
}

size_t pairs(const PackedLinear& weights) {
    return (weights.tiles() + 1) / 2;
}

/// Weights that stay in a core's L2 cache while the blocks of rows pass by.
constexpr size_t item_bytes = 256 << 10;

/// Tiles [begin, end) of one matrix.
struct TileRange {
    const LinearOutput* output;
    size_t begin, end;
};

/// Tiles that go together where a call streams `total` bytes for each of `blocks` blocks of rows:
/// enough such items that threads end together, and small enough for the cache.
size_t tiles_per_item(size_t tile_bytes, size_t total, size_t blocks) {
    const size_t bytes = std::min(item_bytes, total * blocks / (8 * num_threads()));
    return std::max<size_t>(1, bytes / (2 * tile_bytes)) * 2;
}

void plan(const LinearOutput* outputs, size_t count, size_t blocks,
          std::vector<TileRange>& ranges) {
    ranges.clear();
    size_t total = 0;
    for (size_t i = 0; i < count; ++i) total += outputs[i].weights->bytes();
    for (size_t i = 0; i < count; ++i) {
        const PackedLinear& weights = *outputs[i].weights;
        const size_t tiles = tiles_per_item(weights.tile_bytes(), total, blocks);
        for (size_t tile = 0; tile < weights.tiles(); tile += tiles)
            ranges.push_back({&outputs[i], tile, std::min(tile + tiles, weights.tiles())});
    }
}

}  // namespace

void multiply_tiles(const LinearKernels& kernels, const PackedLinear& weights, size_t tile,
                    const QuantizedBlock& block, TileOutput output) {
    // One or two rows wait for memory, which gives one stream faster than two.
    const size_t tiles = block.rows <= 2 ? 1 : kernels.most_tiles;
    const size_t end = output.columns, step = tiles * tile_rows;
    for (size_t column = 0; column < end; column += step, tile += tiles) {
        output.columns = std::min(step, end - column);
        kernels.multiply(weights, weights.tile(tile), block, output);
        output.output += step;
        if (output.initial) output.initial += step;
    }
}

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

void apply_gate(const LinearKernels& kernels, const GateFunction& function, size_t column,
                size_t count, float* gate, float* up) {
    prepare_gate(function, column, count, gate, up);
    kernels.swiglu(gate, up, count);
}

const float* prepare_row(const LinearKernels& kernels, const LinearInput& input, size_t k,
                         size_t row, float* out) {
    const float* x = input.x + row * k;
    if (input.gate) {
        kernels.gate(x, input.gate + row * k, k, out);
        x = out;
    }
    if (input.gamma) {
        kernels.rms_norm(x, input.gamma, input.epsilon, k, out);
        x = out;
    }
    return x;
}

void quantize_rows(const LinearKernels& kernels, const LinearInput& input, size_t k,
                   size_t first_row, const QuantizedBlock& block) {
    if (!input.gamma && !input.gate)
        return kernels.quantize(input.x + first_row * k, k, 0, k, block);
    static thread_local std::vector<float> prepared;
    prepared.resize(max_block_rows * k);
    for (size_t first = 0; first < block.rows; first += max_block_rows) {
        const QuantizedBlock part = block.part(first, std::min(max_block_rows, block.rows - first));
        for (size_t r = 0; r < part.rows; ++r)
            prepare_row(kernels, input, k, first_row + first + r, prepared.data() + r * k);
        kernels.quantize(prepared.data(), k, 0, k, part);
    }
}

void run_tiles(const LinearKernels& kernels, const LinearOutput& matrix, size_t begin, size_t end,
               QuantizedRows& rows, size_t b) {
    const PackedLinear& weights = *matrix.weights;
    const size_t n = weights.n(), column = begin * tile_rows;
    const size_t at = rows.first(b) * n + column;
    TileOutput output;
    output.output = matrix.output + at;
    output.initial = matrix.residual ? matrix.residual + at : nullptr;
    output.stride = n;
    output.columns = std::min(end * tile_rows, n) - column;
    multiply_tiles(kernels, weights, begin, rows.block(b), output);
}

bool have_heads(const LinearOutput* outputs, size_t count) {
    return std::any_of(outputs, outputs + count,
                       [](const LinearOutput& one) { return one.heads.size > 0; });
}

void finish_heads(const LinearKernels& kernels, const LinearOutput* outputs, size_t count,
                  size_t first, size_t rows, const RotaryAngles& angles) {
    for (size_t i = 0; i < count; ++i) {
        const OutputHeads& heads = outputs[i].heads;
        const size_t n = outputs[i].weights->n();
        for (size_t row = first; heads.size > 0 && row < first + rows; ++row) {
            const size_t at = row * angles.size;
            float* begin = outputs[i].output + row * n;
            for (float* head = begin; head != begin + n; head += heads.size) {
                if (heads.gamma)
                    kernels.rms_norm(head, heads.gamma, heads.epsilon, heads.size, head);
                if (heads.rotated)
                    kernels.rotate(head, angles.size, angles.cos + at, angles.sin + at);
            }
        }
    }
}

void run_gated_item(const LinearKernels& kernels, const GatedMlp& mlp, QuantizedRows& rows,
                    size_t begin, size_t end, size_t b, QuantizedRows& inner) {
    alignas(64) static thread_local float gates[max_block_rows * k_block];
    alignas(64) static thread_local float ups[max_block_rows * k_block];
    const QuantizedBlock block = rows.block(b);
    const size_t n = mlp.gate->n();
    for (size_t first = begin; first < end; first += tiles_per_k_block) {
        TileOutput output;
        output.stride = k_block;
        output.columns = (std::min(first + tiles_per_k_block, end) - first) * tile_rows;
        output.output = gates;
        multiply_tiles(kernels, *mlp.gate, first, block, output);
        output.output = ups;
        multiply_tiles(kernels, *mlp.up, first, block, output);
        const size_t c = first / tiles_per_k_block, end_column = std::min(n, (c + 1) * k_block);
        if (!is_plain(mlp.function))
            for (size_t r = 0; r < block.rows; ++r)
                prepare_gate(mlp.function, c * k_block, end_column - c * k_block,
                             gates + r * k_block, ups + r * k_block);
        kernels.swiglu(gates, ups, block.rows * k_block);
        kernels.quantize(gates, k_block, c, end_column, inner.block(b));
    }
}

namespace {

// ---- Few rows: each thread reads its range of a matrix from one end to the other

void stream_linear(const LinearKernels& kernels, const LinearInput& input,
                   const LinearOutput* outputs, size_t count, const RotaryAngles& angles) {
    static thread_local QuantizedRows shared;
    const FewRows few(kernels, input, outputs, count, outputs[0].weights->k(), shared);
    size_t total = 0;
    for (size_t i = 0; i < count; ++i) total += pairs(*outputs[i].weights);
    run_phases(EachThread{[&] { few.quantize_own(); }},
               Phase{few.shared_rows(), [&](size_t row) { few.quantize_shared(row); }},
               StreamPhase{total,
                           [&](size_t i) {
                               const LinearOutput* matrix = outputs;
                               for (; i >= pairs(*matrix->weights); ++matrix)
                                   i -= pairs(*matrix->weights);
                               run_pair_of_all(kernels, *matrix, i, few.rows());
                           }},
               Phase{have_heads(outputs, count) ? input.rows : 0,
                     [&](size_t row) { finish_heads(kernels, outputs, count, row, 1, angles); }});
}

void stream_mlp(const LinearKernels& kernels, const LinearInput& input, const GatedMlp& mlp) {
    static thread_local QuantizedRows shared, own_inner;
    QuantizedRows& inner = own_inner;
    inner.resize(input.rows, mlp.down->k(), input.activations);
    const LinearOutput last{mlp.down, mlp.output, mlp.residual};
    const FewRows few(kernels, input, &last, 1, mlp.gate->k(), shared);
    const size_t tiles = mlp.gate->tiles();
    run_phases(
        EachThread{[&] { few.quantize_own(); }},
        Phase{few.shared_rows(), [&](size_t row) { few.quantize_shared(row); }},
        StreamPhase{(tiles + tiles_per_k_block - 1) / tiles_per_k_block,
                    [&](size_t i) {
                        const size_t begin = i * tiles_per_k_block;
                        const size_t end = std::min(begin + tiles_per_k_block, tiles);
                        for (size_t b = 0; b < inner.blocks(); ++b)
                            run_gated_item(kernels, mlp, few.rows(), begin, end, b, inner);
                    }},
        StreamPhase{pairs(*mlp.down), [&](size_t i) { run_pair_of_all(kernels, last, i, inner); }});
}

}  // namespace

void quantized_linear(const LinearInput& input, const LinearOutput* outputs, size_t count, Isa isa,
                      const RotaryAngles& angles) {
    quantized_linear_by(isa.kernels().linear, input, outputs, count, angles);
}

void gated_mlp(const LinearInput& input, const GatedMlp& mlp, Isa isa) {
    gated_mlp_by(isa.kernels().linear, input, mlp);
}

bool has_bf16_activations(Isa isa) {
    return isa.kernels().linear.bf16.run != nullptr;
}

void quantized_linear_by(const LinearKernels& kernels, const LinearInput& input,
                         const LinearOutput* outputs, size_t count, const RotaryAngles& angles) {
    if (input.rows == 0 || count == 0) return;
    const size_t k = outputs[0].weights->k();
    if (input.activations == Activations::bf16)
        return bf16_linear(kernels, input, outputs, count, angles);
    if (input.rows <= max_streamed_rows)
        return stream_linear(kernels, input, outputs, count, angles);
    // Named here, because in the phases below a thread_local would be the running thread's own.
    static thread_local QuantizedRows own_rows;
    static thread_local std::vector<TileRange> own_ranges;
    QuantizedRows& rows = own_rows;
    std::vector<TileRange>& ranges = own_ranges;
    rows.resize(input.rows, k, input.activations);
    const size_t blocks = rows.blocks();
    plan(outputs, count, blocks, ranges);
    // Range by range, so that its weights stay in the caches while the blocks of rows pass by.
    run_phases(
        Phase{blocks,
              [&](size_t b) { quantize_rows(kernels, input, k, rows.first(b), rows.block(b)); }},
        Phase{ranges.size() * blocks,
              [&](size_t i) {
                  const TileRange& range = ranges[i / blocks];
                  run_tiles(kernels, *range.output, range.begin, range.end, rows, i % blocks);
              }},
        Phase{have_heads(outputs, count) ? blocks : 0, [&](size_t b) {
                  finish_heads(kernels, outputs, count, rows.first(b), rows.block(b).rows, angles);
              }});
}

void gated_mlp_by(const LinearKernels& kernels, const LinearInput& input, const GatedMlp& mlp) {
    if (input.rows == 0) return;
    const PackedLinear &gate = *mlp.gate, &up = *mlp.up, &down = *mlp.down;
    if (input.activations == Activations::bf16) return bf16_mlp(kernels, input, mlp);
    if (input.rows <= max_streamed_rows) return stream_mlp(kernels, input, mlp);
    static thread_local QuantizedRows own_rows, own_inner;
    static thread_local std::vector<TileRange> own_ranges;
    QuantizedRows &rows = own_rows, &inner = own_inner;
    std::vector<TileRange>& ranges = own_ranges;
    const LinearOutput last{&down, mlp.output, mlp.residual};
    rows.resize(input.rows, gate.k(), input.activations);
    inner.resize(input.rows, down.k(), input.activations);
    const size_t blocks = rows.blocks();
    plan(&last, 1, blocks, ranges);

    const size_t wanted =
        tiles_per_item(gate.tile_bytes() + up.tile_bytes(), gate.bytes() + up.bytes(), blocks);
    const size_t step = (wanted + tiles_per_k_block - 1) / tiles_per_k_block * tiles_per_k_block;
    const size_t steps = (gate.tiles() + step - 1) / step;
    run_phases(Phase{blocks,
                     [&](size_t b) {
                         quantize_rows(kernels, input, gate.k(), rows.first(b), rows.block(b));
                     }},
               Phase{steps * blocks,
                     [&](size_t i) {
                         const size_t begin = i / blocks * step;
                         const size_t end = std::min(begin + step, gate.tiles());
                         run_gated_item(kernels, mlp, rows, begin, end, i % blocks, inner);
                     }},
               Phase{ranges.size() * blocks, [&](size_t i) {
                         const TileRange& range = ranges[i / blocks];
                         run_tiles(kernels, last, range.begin, range.end, inner, i % blocks);
                     }});
}

}  // namespace pagewheel::kernels
