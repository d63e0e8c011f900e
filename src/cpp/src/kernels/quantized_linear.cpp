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
    /// Room for `rows` rows of k; what was there before is lost.
    void resize(size_t rows, size_t k) {
        rows_ = rows;
        chunks_ = (k + chunk - 1) / chunk;
        const size_t lines = (rows * chunks_ * (chunk + 2 * sizeof(float)) + 63) / 64;
        if (lines_.size() < lines) lines_.resize(lines);
    }

    size_t blocks() const { return (rows_ + max_block_rows - 1) / max_block_rows; }
    /// First row of block i.
    size_t first(size_t i) const { return i * max_block_rows; }
    QuantizedBlock block(size_t i) {
        auto* values = reinterpret_cast<int8_t*>(lines_.data());
        auto* scales = reinterpret_cast<float*>(values + rows_ * chunks_ * chunk);
        float* sums = scales + rows_ * chunks_;
        const size_t at = first(i) * chunks_;
        return {std::min(rows_ - first(i), max_block_rows), values + at * chunk, scales + at,
                sums + at};
    }

private:
    size_t rows_ = 0, chunks_ = 0;
    std::vector<CacheLine> lines_;
};

/// Rows as the activations of a call, normalised first where that is asked for.
void quantize_block(const LinearVariant& variant, const LinearInput& input, size_t k,
                    QuantizedRows& rows, size_t b) {
    const QuantizedBlock block = rows.block(b);
    const float* x = input.x + rows.first(b) * k;
    if (input.gamma) {
        static thread_local std::vector<float> normed;
        normed.resize(max_block_rows * k);
        for (size_t r = 0; r < block.rows; ++r)
            variant.rms_norm(x + r * k, input.gamma, input.epsilon, k, normed.data() + r * k);
        x = normed.data();
    }
    variant.quantize(x, k, 0, k, block);
}

/// Tiles [begin, end) of one matrix.
struct Item {
    const LinearOutput* output;
    size_t begin, end;
};

/// Tiles that go together where a call streams `total` bytes: enough such items that threads end
/// together, and small enough for the cache.
size_t tiles_per_item(size_t tile_bytes, size_t total) {
    const auto threads = size_t(tbb::this_task_arena::max_concurrency());
    return std::max<size_t>(1, std::min(item_bytes, total / (8 * threads)) / tile_bytes);
}

void plan(const LinearOutput* outputs, size_t count, std::vector<Item>& items) {
    items.clear();
    size_t total = 0;
    for (size_t i = 0; i < count; ++i) total += outputs[i].weights->bytes();
    for (size_t i = 0; i < count; ++i) {
        const PackedLinear& weights = *outputs[i].weights;
        const size_t tiles = tiles_per_item(weights.tile_bytes(), total);
        for (size_t tile = 0; tile < weights.tiles(); tile += tiles)
            items.push_back({&outputs[i], tile, std::min(tile + tiles, weights.tiles())});
    }
}

void run_item(const LinearVariant& variant, QuantizedRows& rows, const Item& item) {
    const PackedLinear& weights = *item.output->weights;
    const size_t n = weights.n();
    for (size_t b = 0; b < rows.blocks(); ++b) {
        const QuantizedBlock block = rows.block(b);
        for (size_t tile = item.begin; tile < item.end; ++tile) {
            const size_t column = tile * tile_rows;
            const size_t at = rows.first(b) * n + column;
            TileOutput output;
            output.output = item.output->output + at;
            output.initial = item.output->residual ? item.output->residual + at : nullptr;
            output.stride = n;
            output.columns = std::min(tile_rows, n - column);
            variant.multiply(weights, weights.tile(tile), block, output);
        }
    }
}

/// Tiles [begin, end) of gate and up, of whole chunks of what they give, to the rows that `down`
/// takes.
void run_gated_item(const LinearVariant& variant, const GatedMlp& mlp, QuantizedRows& rows,
                    size_t begin, size_t end, QuantizedRows& inner) {
    static thread_local std::vector<float> memory;
    const size_t n = mlp.gate->n(), first = begin * tile_rows;
    const size_t width = (end - begin) * tile_rows;
    memory.resize(2 * max_block_rows * width);
    float *gates = memory.data(), *ups = gates + max_block_rows * width;
    for (size_t b = 0; b < rows.blocks(); ++b) {
        const QuantizedBlock block = rows.block(b);
        for (size_t tile = begin; tile < end; ++tile) {
            TileOutput output;
            output.stride = width;
            output.output = gates + (tile - begin) * tile_rows;
            variant.multiply(*mlp.gate, mlp.gate->tile(tile), block, output);
            output.output = ups + (tile - begin) * tile_rows;
            variant.multiply(*mlp.up, mlp.up->tile(tile), block, output);
        }
        variant.swiglu(gates, ups, block.rows * width);
        variant.quantize(gates, width, first / chunk, std::min(n, first + width), inner.block(b));
    }
}

}  // namespace

void quantized_linear(const LinearInput& input, const LinearOutput* outputs, size_t count,
                      Isa isa) {
    if (input.rows == 0 || count == 0) return;
    const size_t k = outputs[0].weights->k();
    for (size_t i = 1; i < count; ++i)
        check_argument(outputs[i].weights->k() == k, "matrices of ", k, " and ",
                       outputs[i].weights->k(), " inputs share their input: must be equal");
    const LinearVariant& variant = variant_of(isa);
    // Named here, because in the phases below a thread_local would be the running thread's own.
    static thread_local QuantizedRows own_rows;
    static thread_local std::vector<Item> own_items;
    QuantizedRows& rows = own_rows;
    std::vector<Item>& items = own_items;
    rows.resize(input.rows, k);
    plan(outputs, count, items);
    run_phases(Phase{rows.blocks(), [&](size_t b) { quantize_block(variant, input, k, rows, b); }},
               Phase{items.size(), [&](size_t i) { run_item(variant, rows, items[i]); }});
}

void gated_mlp(const LinearInput& input, const GatedMlp& mlp, Isa isa) {
    if (input.rows == 0) return;
    const PackedLinear &gate = *mlp.gate, &up = *mlp.up, &down = *mlp.down;
    check_argument(gate.k() == up.k() && gate.n() == up.n() && down.k() == gate.n(),
                   "an MLP of gate [", gate.n(), ", ", gate.k(), "], up [", up.n(), ", ", up.k(),
                   "] and down [", down.n(), ", ", down.k(), "]: sizes must agree");
    const LinearVariant& variant = variant_of(isa);
    static thread_local QuantizedRows own_rows, own_inner;
    static thread_local std::vector<Item> own_items;
    QuantizedRows &rows = own_rows, &inner = own_inner;
    std::vector<Item>& items = own_items;
    rows.resize(input.rows, gate.k());
    inner.resize(input.rows, down.k());
    const LinearOutput output{&down, mlp.output, mlp.residual};
    plan(&output, 1, items);

    constexpr size_t tiles_per_chunk = chunk / tile_rows;
    const size_t wanted =
        tiles_per_item(gate.tile_bytes() + up.tile_bytes(), gate.bytes() + up.bytes());
    const size_t step = (wanted + tiles_per_chunk - 1) / tiles_per_chunk * tiles_per_chunk;
    run_phases(
        Phase{rows.blocks(), [&](size_t b) { quantize_block(variant, input, gate.k(), rows, b); }},
        Phase{(gate.tiles() + step - 1) / step,
              [&](size_t i) {
                  const size_t end = std::min((i + 1) * step, gate.tiles());
                  run_gated_item(variant, mlp, rows, i * step, end, inner);
              }},
        Phase{items.size(), [&](size_t i) { run_item(variant, inner, items[i]); }});
}

}  // namespace pagewheel::kernels
