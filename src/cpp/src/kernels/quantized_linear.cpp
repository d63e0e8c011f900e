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

    size_t blocks() const {
        const size_t rest = rows_ % max_block_rows;
        return rows_ / max_block_rows + (rest > 0) + (rest > 8);
    }
    /// First row of block i.
    size_t first(size_t i) const {
        const size_t full = rows_ / max_block_rows;
        return i <= full ? i * max_block_rows : full * max_block_rows + 8;
    }
    QuantizedBlock block(size_t i) {
        auto* values = reinterpret_cast<int8_t*>(lines_.data());
        auto* scales = reinterpret_cast<float*>(values + rows_ * chunks_ * chunk);
        float* sums = scales + rows_ * chunks_;
        const size_t at = first(i) * chunks_;
        return {block_rows(rows_ - first(i)), values + at * chunk, scales + at, sums + at};
    }

private:
    size_t rows_ = 0, chunks_ = 0;
    std::vector<CacheLine> lines_;
};

/// Tiles [begin, end) of one matrix.
struct Item {
    const LinearOutput* output;
    size_t begin, end;
};

/// Cuts the matrices into items: enough of them that threads end together, and small enough for the
/// cache.
void plan(const LinearOutput* outputs, size_t count, std::vector<Item>& items) {
    items.clear();
    size_t total = 0;
    for (size_t i = 0; i < count; ++i) total += outputs[i].weights->bytes();
    const auto threads = size_t(tbb::this_task_arena::max_concurrency());
    const size_t target = std::min(item_bytes, total / (8 * threads));
    for (size_t i = 0; i < count; ++i) {
        const PackedLinear& weights = *outputs[i].weights;
        const size_t tiles = std::max<size_t>(1, target / weights.tile_bytes());
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
            const size_t column = tile * PackedLinear::tile_rows;
            const size_t at = rows.first(b) * n + column;
            TileOutput output;
            output.output = item.output->output + at;
            output.initial = item.output->residual ? item.output->residual + at : nullptr;
            output.stride = n;
            output.columns = std::min(PackedLinear::tile_rows, n - column);
            variant.multiply(weights, weights.tile(tile), block, output);
        }
    }
}

}  // namespace

void quantized_linear(const LinearOutput* outputs, size_t count, const float* x, size_t rows,
                      Isa isa) {
    if (rows == 0 || count == 0) return;
    const size_t k = outputs[0].weights->k();
    for (size_t i = 1; i < count; ++i)
        check_argument(outputs[i].weights->k() == k, "matrices of ", k, " and ",
                       outputs[i].weights->k(), " inputs share their input: must be equal");
    const LinearVariant& variant = variant_of(isa);
    static thread_local QuantizedRows memory;
    static thread_local std::vector<Item> items;
    QuantizedRows& quantized = memory;
    quantized.resize(rows, k);
    plan(outputs, count, items);
    const std::vector<Item>& planned = items;
    run_phases(Phase{quantized.blocks(),
                     [&](size_t b) {
                         variant.quantize(x + quantized.first(b) * k, k, quantized.block(b));
                     }},
               Phase{planned.size(), [&](size_t i) { run_item(variant, quantized, planned[i]); }});
}

}  // namespace pagewheel::kernels
