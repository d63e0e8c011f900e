// Divides linear layers into tiles of weights and blocks of rows for all threads.
#include "kernels/quantized_linear.hpp"

#include <algorithm>
#include <vector>

#include "check.hpp"
#include "kernels/quantized_linear_tile.hpp"
#include "kernels/team.hpp"

namespace pagewheel::kernels {
namespace {

constexpr size_t chunk = PackedLinear::chunk;
constexpr size_t tile_rows = PackedLinear::tile_rows;
constexpr size_t tiles_per_chunk = chunk / tile_rows;

/// Weights that stay in a core's L2 cache while the blocks of rows pass by.
constexpr size_t item_bytes = 256 << 10;

const LinearVariant& variant_of(Isa isa) {
#if defined(__x86_64__)
    if (isa == Isa::avx512) return linear_avx512();
    if (isa == Isa::avx2) return linear_avx2();
#endif
    (void)isa;
    return linear_reference();
}

struct alignas(64) CacheLine {
    uint8_t bytes[64];
};

/// The int8 rows of a call, in blocks.
class QuantizedRows {
public:
    /// Room for `rows` rows of k, in a form for paired products or not; what was there is lost.
    void resize(size_t rows, size_t k, bool paired) {
        m_rows = rows;
        m_chunks = (k + chunk - 1) / chunk;
        m_paired = paired;
        m_block_rows = max_block_rows;
        if (paired) {  // blocks alike: a small last one would be slow
            const size_t count = (rows + max_paired_rows - 1) / max_paired_rows;
            m_block_rows = (rows + count - 1) / count;
        }
        const size_t lines = (rows * m_chunks * (chunk + 4 * sizeof(float)) + 63) / 64;
        if (m_lines.size() < lines) m_lines.resize(lines);
    }

    bool paired() const { return m_paired; }
    size_t blocks() const { return (m_rows + m_block_rows - 1) / m_block_rows; }
    /// First row of block i.
    size_t first(size_t i) const { return i * m_block_rows; }
    QuantizedBlock block(size_t i) {
        const size_t values = m_rows * m_chunks, at = first(i) * m_chunks;
        auto* bytes = reinterpret_cast<int8_t*>(m_lines.data());
        auto* scales = reinterpret_cast<float*>(bytes + values * chunk);
        auto* corrections = reinterpret_cast<int32_t*>(scales + 2 * values);
        const size_t rows = std::min(m_rows - first(i), m_block_rows);
        QuantizedBlock block{rows, rows, bytes + at * chunk, scales + at, scales + values + at};
        if (m_paired) {
            block.corrections = corrections + at;
            block.moves = corrections + values + at;
        }
        return block;
    }

private:
    size_t m_rows = 0, m_chunks = 0, m_block_rows = max_block_rows;
    bool m_paired = false;
    std::vector<CacheLine> m_lines;
};

/// Whether so many rows are multiplied in pairs: a chunk is unpacked for all rows of a block, and
/// for eight or less that takes longer than what pairs save.
bool takes_pairs(const LinearVariant& variant, size_t rows, const LinearOutput* matrices,
                 size_t count) {
    return variant.multiply_pairs && rows > max_block_rows &&
           std::all_of(matrices, matrices + count,
                       [](const LinearOutput& matrix) { return matrix.weights->bits() == 4; });
}

/// Rows as the activations of a call, normalised first where that is asked for.
void quantize_block(const LinearVariant& variant, const LinearInput& input, size_t k,
                    QuantizedRows& rows, size_t b) {
    const QuantizedBlock block = rows.block(b);
    const float* x = input.x + rows.first(b) * k;
    if (!input.gamma) return variant.quantize(x, k, 0, k, block);
    static thread_local std::vector<float> normed;
    normed.resize(max_block_rows * k);
    for (size_t first = 0; first < block.rows; first += max_block_rows) {
        const QuantizedBlock part = block.part(first, std::min(max_block_rows, block.rows - first));
        for (size_t r = 0; r < part.rows; ++r)
            variant.rms_norm(x + (first + r) * k, input.gamma, input.epsilon, k,
                             normed.data() + r * k);
        variant.quantize(normed.data(), k, 0, k, part);
    }
}

void multiply(const LinearVariant& variant, const PackedLinear& weights, size_t tile,
              const QuantizedBlock& block, const TileOutput& output) {
    const auto product = block.corrections ? variant.multiply_pairs : variant.multiply;
    product(weights, weights.tile(tile), block, output);
}

/// Tiles [begin, end) of one matrix.
struct TileRange {
    const LinearOutput* output;
    size_t begin, end;
};

/// Tiles that go together where a call streams `total` bytes for each of `blocks` blocks of rows:
/// enough such items that threads end together, and small enough for the cache.
size_t tiles_per_item(size_t tile_bytes, size_t total, size_t blocks) {
    const auto threads = size_t(tbb::this_task_arena::max_concurrency());
    return std::max<size_t>(1, std::min(item_bytes, total * blocks / (8 * threads)) / tile_bytes);
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

/// One range of weights times block b of the rows.
void run_item(const LinearVariant& variant, QuantizedRows& rows, const TileRange& range, size_t b) {
    const PackedLinear& weights = *range.output->weights;
    const QuantizedBlock block = rows.block(b);
    const size_t n = weights.n();
    for (size_t tile = range.begin; tile < range.end; ++tile) {
        const size_t column = tile * tile_rows;
        const size_t at = rows.first(b) * n + column;
        TileOutput output;
        output.output = range.output->output + at;
        output.initial = range.output->residual ? range.output->residual + at : nullptr;
        output.stride = n;
        output.columns = std::min(tile_rows, n - column);
        multiply(variant, weights, tile, block, output);
    }
}

/// Turns rows [first, first + rows) of the outputs that are to be.
void turn_block(const LinearVariant& variant, const LinearOutput* outputs, size_t count,
                size_t first, size_t rows, const RotaryAngles& angles) {
    const size_t size = angles.size;
    for (size_t i = 0; i < count; ++i) {
        const size_t n = outputs[i].weights->n();
        for (size_t row = first; outputs[i].turned && row < first + rows; ++row)
            variant.turn(outputs[i].output + row * n, n / size, size, angles.cos + row * size,
                         angles.sin + row * size);
    }
}

/// Tiles [begin, end) of gate and up, of whole chunks of what they give, times block b of the rows,
/// to the rows that `down` takes. A chunk's products stay in the L1 cache until they are quantised.
void run_gated_item(const LinearVariant& variant, const GatedMlp& mlp, QuantizedRows& rows,
                    size_t begin, size_t end, size_t b, QuantizedRows& inner) {
    alignas(64) static thread_local float gates[max_paired_rows * chunk];
    alignas(64) static thread_local float ups[max_paired_rows * chunk];
    const QuantizedBlock block = rows.block(b);
    for (size_t first = begin; first < end; first += tiles_per_chunk) {
        for (size_t tile = first; tile < std::min(first + tiles_per_chunk, end); ++tile) {
            TileOutput output;
            output.stride = chunk;
            output.output = gates + (tile - first) * tile_rows;
            multiply(variant, *mlp.gate, tile, block, output);
            output.output = ups + (tile - first) * tile_rows;
            multiply(variant, *mlp.up, tile, block, output);
        }
        variant.swiglu(gates, ups, block.rows * chunk);
        const size_t c = first / tiles_per_chunk;
        variant.quantize(gates, chunk, c, std::min(mlp.gate->n(), (c + 1) * chunk), inner.block(b));
    }
}

}  // namespace

void quantized_linear(const LinearInput& input, const LinearOutput* outputs, size_t count, Isa isa,
                      const RotaryAngles& angles) {
    if (input.rows == 0 || count == 0) return;
    const size_t k = outputs[0].weights->k();
    for (size_t i = 1; i < count; ++i)
        check_argument(outputs[i].weights->k() == k, "matrices of ", k, " and ",
                       outputs[i].weights->k(), " inputs share their input: must be equal");
    for (size_t i = 0; i < count; ++i)
        check_argument(!outputs[i].turned || (angles.size > 0 && angles.size % 2 == 0 &&
                                              outputs[i].weights->n() % angles.size == 0),
                       "heads of ", angles.size, " are to be turned in an output of ",
                       outputs[i].weights->n(), ": must be even and a divisor of it");
    const LinearVariant& variant = variant_of(isa);
    // Named here, because in the phases below a thread_local would be the running thread's own.
    static thread_local QuantizedRows own_rows;
    static thread_local std::vector<TileRange> own_ranges;
    QuantizedRows& rows = own_rows;
    std::vector<TileRange>& ranges = own_ranges;
    rows.resize(input.rows, k, takes_pairs(variant, input.rows, outputs, count));
    const size_t blocks = rows.blocks();
    plan(outputs, count, blocks, ranges);
    // Range by range, so that its weights stay in the caches while the blocks of rows pass by.
    run_phases(Phase{blocks, [&](size_t b) { quantize_block(variant, input, k, rows, b); }},
               Phase{ranges.size() * blocks,
                     [&](size_t i) { run_item(variant, rows, ranges[i / blocks], i % blocks); }},
               Phase{angles.size ? blocks : 0, [&](size_t b) {
                         turn_block(variant, outputs, count, rows.first(b), rows.block(b).rows,
                                    angles);
                     }});
}

void gated_mlp(const LinearInput& input, const GatedMlp& mlp, Isa isa) {
    if (input.rows == 0) return;
    const PackedLinear &gate = *mlp.gate, &up = *mlp.up, &down = *mlp.down;
    check_argument(gate.k() == up.k() && gate.n() == up.n() && down.k() == gate.n(),
                   "an MLP of gate [", gate.n(), ", ", gate.k(), "], up [", up.n(), ", ", up.k(),
                   "] and down [", down.n(), ", ", down.k(), "]: sizes must agree");
    const LinearVariant& variant = variant_of(isa);
    static thread_local QuantizedRows own_rows, own_inner;
    static thread_local std::vector<TileRange> own_ranges;
    QuantizedRows &rows = own_rows, &inner = own_inner;
    std::vector<TileRange>& ranges = own_ranges;
    const LinearOutput matrices[] = {{&gate}, {&up}, {&down, mlp.output, mlp.residual}};
    const bool paired = takes_pairs(variant, input.rows, matrices, 3);
    rows.resize(input.rows, gate.k(), paired);
    inner.resize(input.rows, down.k(), paired);
    const size_t blocks = rows.blocks();
    plan(&matrices[2], 1, blocks, ranges);

    const size_t wanted =
        tiles_per_item(gate.tile_bytes() + up.tile_bytes(), gate.bytes() + up.bytes(), blocks);
    const size_t step = (wanted + tiles_per_chunk - 1) / tiles_per_chunk * tiles_per_chunk;
    const size_t steps = (gate.tiles() + step - 1) / step;
    run_phases(Phase{blocks, [&](size_t b) { quantize_block(variant, input, gate.k(), rows, b); }},
               Phase{steps * blocks,
                     [&](size_t i) {
                         const size_t begin = i / blocks * step;
                         const size_t end = std::min(begin + step, gate.tiles());
                         run_gated_item(variant, mlp, rows, begin, end, i % blocks, inner);
                     }},
               Phase{ranges.size() * blocks,
                     [&](size_t i) { run_item(variant, inner, ranges[i / blocks], i % blocks); }});
}

}  // namespace pagewheel::kernels
