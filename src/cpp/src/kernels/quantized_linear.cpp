// Divides linear layers into tiles of weights and blocks of rows for all threads.
#include "kernels/quantized_linear.hpp"

#include <algorithm>
#include <vector>

#include "base/check.hpp"
#include "kernels/bf16_linear.hpp"
#include "kernels/kernels.hpp"
#include "kernels/quantized_linear_parts.hpp"
#include "kernels/quantized_linear_stream.hpp"
#include "kernels/team.hpp"

namespace pagewheel::kernels {
namespace {

/// Weights that stay in a core's L2 cache while the blocks of rows pass by.
constexpr size_t item_bytes = 256 << 10;

/// The form of the rows of a call that is too long for streaming.
RowForm form_of(const LinearKernels& kernels, const LinearInput& input,
                const LinearOutput* matrices, size_t count) {
    const bool paired = kernels.multiply_pairs && input.activations == Activations::int8 &&
                        std::all_of(matrices, matrices + count,
                                    [](const auto& matrix) { return matrix.weights->bits() == 4; });
    return paired ? RowForm::paired : streamed_form(input);
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
void run_item(const LinearKernels& kernels, QuantizedRows& rows, const TileRange& range, size_t b) {
    for (size_t tile = range.begin; tile < range.end; ++tile)
        run_tile(kernels, *range.output, tile, rows, b);
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
    for (size_t i = 1; i < count; ++i)
        check_argument(outputs[i].weights->k() == k, "matrices of ", k, " and ",
                       outputs[i].weights->k(), " inputs share their input: must be equal");
    for (size_t i = 0; i < count; ++i)
        check_argument(!outputs[i].rotated || (angles.size > 0 && angles.size % 2 == 0 &&
                                               outputs[i].weights->n() % angles.size == 0),
                       "heads of ", angles.size, " are to be rotated in an output of ",
                       outputs[i].weights->n(), ": must be even and a divisor of it");
    if (input.activations == Activations::bf16)
        return bf16_linear(kernels, input, outputs, count, angles);
    if (input.rows <= max_streamed_rows)
        return stream_linear(kernels, input, outputs, count, angles);
    // Named here, because in the phases below a thread_local would be the running thread's own.
    static thread_local QuantizedRows own_rows;
    static thread_local std::vector<TileRange> own_ranges;
    QuantizedRows& rows = own_rows;
    std::vector<TileRange>& ranges = own_ranges;
    rows.resize(input.rows, k, form_of(kernels, input, outputs, count));
    const size_t blocks = rows.blocks();
    plan(outputs, count, blocks, ranges);
    // Range by range, so that its weights stay in the caches while the blocks of rows pass by.
    run_phases(
        Phase{blocks,
              [&](size_t b) { quantize_rows(kernels, input, k, rows.first(b), rows.block(b)); }},
        Phase{ranges.size() * blocks,
              [&](size_t i) { run_item(kernels, rows, ranges[i / blocks], i % blocks); }},
        Phase{angles.size ? blocks : 0, [&](size_t b) {
                  rotate_rows(kernels, outputs, count, rows.first(b), rows.block(b).rows, angles);
              }});
}

void gated_mlp_by(const LinearKernels& kernels, const LinearInput& input, const GatedMlp& mlp) {
    if (input.rows == 0) return;
    const PackedLinear &gate = *mlp.gate, &up = *mlp.up, &down = *mlp.down;
    check_argument(gate.k() == up.k() && gate.n() == up.n() && down.k() == gate.n(),
                   "an MLP of gate [", gate.n(), ", ", gate.k(), "], up [", up.n(), ", ", up.k(),
                   "] and down [", down.n(), ", ", down.k(), "]: sizes must agree");
    if (input.activations == Activations::bf16) return bf16_mlp(kernels, input, mlp);
    if (input.rows <= max_streamed_rows) return stream_mlp(kernels, input, mlp);
    static thread_local QuantizedRows own_rows, own_inner;
    static thread_local std::vector<TileRange> own_ranges;
    QuantizedRows &rows = own_rows, &inner = own_inner;
    std::vector<TileRange>& ranges = own_ranges;
    const LinearOutput matrices[] = {{&gate}, {&up}, {&down, mlp.output, mlp.residual}};
    const RowForm form = form_of(kernels, input, matrices, 3);
    rows.resize(input.rows, gate.k(), form);
    inner.resize(input.rows, down.k(), form);
    const size_t blocks = rows.blocks();
    plan(&matrices[2], 1, blocks, ranges);

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
               Phase{ranges.size() * blocks,
                     [&](size_t i) { run_item(kernels, inner, ranges[i / blocks], i % blocks); }});
}

}  // namespace pagewheel::kernels
