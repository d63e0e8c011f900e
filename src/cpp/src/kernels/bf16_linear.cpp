// Divides linear layers in bf16 into blocks of rows and weight tiles for all threads.
#include "kernels/bf16_linear.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "base/check.hpp"
#include "kernels/quantized_linear_parts.hpp"
#include "kernels/team.hpp"

namespace pagewheel::kernels {
namespace {

constexpr size_t tile_outputs = PackedLinear::tile_rows;

/// The fewest rows of an item that are worth unpacking weights for once more.
constexpr size_t least_item_rows = 32;

/// Rows whose gates and ups stay in the L1 cache until they are rounded.
constexpr size_t gated_rows = 32;

// ---- A block by groups of tiles

/// The ranges of k that weights are unpacked in, alike. They depend on k alone, as a row's sums do.
struct Ranges {
    size_t k_blocks, count;

    Ranges(const Bf16Kernels& kernels, size_t k_blocks)
        : k_blocks(k_blocks),
          count((k_blocks + kernels.range_k_blocks - 1) / kernels.range_k_blocks) {}
    size_t begin(size_t i) const { return k_blocks * i / count; }
    size_t size(size_t i) const { return begin(i + 1) - begin(i); }
};

/// A range of k of some weight tiles in bf16, which lie `stride` apart.
struct WeightRange {
    const uint16_t* weights;
    size_t stride, tiles;
};

/// Range `i` of a block's tiles [begin, end), and of those of `up` after them: where they are held
/// in bf16, or one behind the other in the thread's own memory. Without weights where there are no
/// more.
std::array<WeightRange, 2> weight_ranges(const Bf16Kernels& kernels, const Bf16Block& block,
                                         size_t begin, size_t end, const Ranges& ranges, size_t i) {
    if (block.weights->is_bf16()) {
        const auto held = [&](const PackedLinear* weights) {
            return WeightRange{weights ? weights->numbers(begin, ranges.begin(i)) : nullptr,
                               ranges.k_blocks * tile_block, end - begin};
        };
        return {held(block.weights), held(block.up)};
    }
    static thread_local LineBuffer<uint16_t> buffer;
    const size_t range = ranges.size(i) * tile_block, tiles = (end - begin) * (block.up ? 2 : 1);
    uint16_t* out = buffer.resize(tiles * range);
    for (const PackedLinear* weights : {block.weights, block.up})
        for (size_t tile = begin; weights && tile < end; ++tile, out += range)
            kernels.unpack(*weights, tile, ranges.begin(i), ranges.begin(i + 1), out);
    return {WeightRange{buffer.data(), range, tiles}, {}};
}

/// Range `i` of k of `count` rows from `first` on, without weights and output.
Bf16Product product_of(const PackedRows& rows, size_t first, size_t count, const Ranges& ranges,
                       size_t i) {
    Bf16Product product;
    product.rows = rows.at(first, ranges.begin(i));
    product.tile_stride = rows.tile_stride;
    product.row_count = count;
    product.k_blocks = ranges.size(i);
    return product;
}

void set_weights(Bf16Product& product, const WeightRange& range) {
    product.weights = range.weights;
    product.weight_stride = range.stride;
    product.tile_count = range.tiles;
}

/// The sums of a group between ranges.
float* own_sums(size_t size) {
    static thread_local LineBuffer<float> buffer;
    return buffer.resize(size);
}

void run_group(const Bf16Kernels& kernels, const Bf16Block& block, size_t begin, size_t end) {
    const size_t n = block.weights->n(), column = begin * tile_outputs;
    const size_t width = (end - begin) * tile_outputs;
    const Ranges ranges(kernels, block.weights->k_blocks());
    float* sums = ranges.count > 1 ? own_sums(block.row_count * width) : nullptr;
    for (size_t i = 0; i < ranges.count; ++i) {
        Bf16Product product = product_of(block.rows, 0, block.row_count, ranges, i);
        set_weights(product, weight_ranges(kernels, block, begin, end, ranges, i)[0]);
        const bool begins = i == 0, ends = i + 1 == ranges.count;
        const size_t first = (begin - block.begin) * tile_outputs;
        const float* residual = block.residual ? block.residual + first : nullptr;
        Bf16Output& output = product.output;
        output.initial = begins ? residual : sums;
        output.initial_stride = begins ? block.stride : width;
        output.output = ends ? block.output + first : sums;
        output.output_stride = ends ? block.stride : width;
        output.columns = std::min(width, n - column);
        kernels.multiply(product);
    }
}

/// SwiGLU of `count` rows of gates and ups side by side, rounded into the rows that `down` takes.
void finish_gated(const LinearKernels& kernels, const Bf16Block& block, size_t begin, size_t end,
                  float* sums, size_t first, size_t count) {
    const size_t half = (end - begin) * tile_outputs, column = begin * tile_outputs;
    const size_t columns = std::min(half, block.weights->n() - column);
    for (size_t r = 0; r < count; ++r, sums += 2 * half) {
        apply_gate(kernels, *block.function, column, columns, sums, sums + half);
        kernels.bf16.pack_row(sums, columns, block.inner.tile_rows,
                              block.inner.at(first + r, column / PackedLinear::k_block));
    }
}

void run_gated_group(const LinearKernels& all, const Bf16Block& block, size_t begin, size_t end) {
    const Bf16Kernels& kernels = all.bf16;
    const size_t width = 2 * (end - begin) * tile_outputs;
    const size_t count = block.row_count, tile_rows = block.rows.tile_rows;
    const Ranges ranges(kernels, block.weights->k_blocks());
    // With one range a few rows are finished at a time, in the same memory.
    const size_t step = ranges.count == 1 ? gated_rows / tile_rows * tile_rows : count;
    float* sums = own_sums(std::min(step, count) * width);
    for (size_t i = 0; i < ranges.count; ++i) {
        const auto weights = weight_ranges(kernels, block, begin, end, ranges, i);
        for (size_t row = 0; row < count; row += step) {
            const size_t some = std::min(step, count - row);
            Bf16Product product = product_of(block.rows, row, some, ranges, i);
            float* output = sums;
            for (const WeightRange& range : weights) {
                if (!range.weights) break;
                set_weights(product, range);
                const size_t columns = range.tiles * tile_outputs;
                product.output = {output, i == 0 ? nullptr : output, width, width, columns};
                kernels.multiply(product);
                output += columns;
            }
            if (i + 1 == ranges.count) finish_gated(all, block, begin, end, sums, row, some);
        }
    }
}

// ---- Blocks

/// Packs rows [first, first + count) of a call.
void pack_rows(const LinearKernels& kernels, const LinearInput& input, size_t k, size_t first,
               size_t count, const PackedRows& rows) {
    for (size_t r = 0; r < count; ++r)
        pack_row(kernels, input, k, first + r, rows.tile_rows, rows.at(r, 0));
}

/// Room for `count` rows of k.
PackedRows resize(LineBuffer<uint16_t>& memory, size_t count, size_t k, size_t tile_rows) {
    return packed_rows(memory.resize(packed_numbers(count, k, tile_rows)), k, tile_rows);
}

/// Rows [first, first + count) of a call, packed as `rows`, times a matrix.
Bf16Block block_of(const LinearOutput& matrix, const PackedRows& rows, size_t first, size_t count) {
    const size_t at = first * matrix.weights->n();
    Bf16Block block;
    block.rows = rows;
    block.row_count = count;
    block.weights = matrix.weights;
    block.end = matrix.weights->tiles();
    block.output = matrix.output + at;
    block.residual = matrix.residual ? matrix.residual + at : nullptr;
    block.stride = matrix.weights->n();
    return block;
}

// ---- Threads that keep their own rows

/// How the rows of a call are divided among threads that keep them: blocks alike, as many for each.
struct OwnRows {
    size_t rows, step = 0, blocks = 0;

    /// No blocks where threads have too few rows for that.
    OwnRows(const Bf16Kernels& kernels, size_t rows) : rows(rows) {
        const size_t threads = num_threads(), unit = 2 * kernels.tile_rows;
        if (!kernels.least_own_rows || rows < threads * kernels.least_own_rows) return;
        const size_t rounds =
            (rows + threads * kernels.most_rows - 1) / (threads * kernels.most_rows);
        step = (rows + threads * rounds - 1) / (threads * rounds);
        step = (step + unit - 1) / unit * unit;
        blocks = (rows + step - 1) / step;
    }
    /// Calls body(first row, rows) for each block.
    template <class Body>
    void run(const Body& body) const {
        run_phases(StreamPhase{blocks,
                               [&](size_t i) { body(i * step, std::min(step, rows - i * step)); }});
    }
};

/// Packs a block into memory of the running thread.
PackedRows pack_own_rows(const LinearKernels& kernels, const LinearInput& input, size_t k,
                         size_t first, size_t count) {
    static thread_local LineBuffer<uint16_t> memory;
    const PackedRows rows = resize(memory, count, k, kernels.bf16.tile_rows);
    pack_rows(kernels, input, k, first, count, rows);
    return rows;
}

void run_own_rows(const LinearKernels& kernels, const LinearInput& input,
                  const LinearOutput* outputs, size_t matrices, const RotaryAngles& angles,
                  size_t first, size_t count) {
    const size_t k = outputs[0].weights->k();
    const PackedRows rows = pack_own_rows(kernels, input, k, first, count);
    for (size_t i = 0; i < matrices; ++i)
        run_block(kernels, block_of(outputs[i], rows, first, count));
    finish_heads(kernels, outputs, matrices, first, count, angles);
}

void run_own_rows(const LinearKernels& kernels, const LinearInput& input, const GatedMlp& mlp,
                  size_t first, size_t count) {
    static thread_local LineBuffer<uint16_t> memory;
    const PackedRows rows = pack_own_rows(kernels, input, mlp.gate->k(), first, count);
    const PackedRows inner = resize(memory, count, mlp.down->k(), rows.tile_rows);
    run_block(kernels, gated_block_of(mlp, rows, count, inner));
    run_block(kernels, block_of({mlp.down, mlp.output, mlp.residual}, inner, first, count));
}

// ---- Threads that share all rows

/// Rows [first, first + count) times tiles [begin, end) of a matrix.
struct Item {
    size_t matrix, begin, end, first, count;
};

/// Tiles of an item: fewer than the kernels like where that gives each thread a few.
size_t tiles_per_item(const Bf16Kernels& kernels, size_t tiles) {
    size_t step = kernels.item_tiles;
    while (step > 4 && tiles < 4 * num_threads() * step) step /= 2;
    return step;
}

/// Tiles that a tile of the gate brings into an item: its own and that of up, which are unpacked
/// side by side, or its own where nothing is unpacked.
size_t gated_tiles(const PackedLinear& weights) {
    return weights.is_bf16() ? 1 : 2;
}

/// All tiles of matrices with so many times all rows. Items become smaller towards the end, so
/// that threads end together though each item unpacks its tiles.
void divide(const Bf16Kernels& kernels, const std::vector<size_t>& tiles, size_t item_tiles,
            size_t rows, std::vector<Item>& items) {
    const size_t unit = 2 * kernels.tile_rows;
    size_t left = 0;
    for (const size_t count : tiles) left += (count + item_tiles - 1) / item_tiles * rows;
    items.clear();
    for (size_t i = 0; i < tiles.size(); ++i)
        for (size_t begin = 0; begin < tiles[i]; begin += item_tiles)
            for (size_t first = 0, count; first < rows; first += count, left -= count) {
                count = std::clamp(left / (2 * num_threads()), least_item_rows, kernels.most_rows);
                count = (count + unit - 1) / unit * unit;
                if (rows - first < count + least_item_rows) count = rows - first;
                items.push_back({i, begin, std::min(begin + item_tiles, tiles[i]), first, count});
            }
}

void run_item(const LinearKernels& kernels, const Item& item, Bf16Block block) {
    block.begin = item.begin;
    block.end = item.end;
    const size_t column = item.begin * tile_outputs;
    if (!block.up) block.output += column;
    if (block.residual) block.residual += column;
    run_block(kernels, block);
}

/// What the threads of a call share, kept from call to call.
struct SharedRows {
    LineBuffer<uint16_t> rows, inner;
    std::vector<size_t> tiles;
    std::vector<Item> items, gated_items;

    static SharedRows& mine() {
        static thread_local SharedRows shared;
        return shared;
    }
};

/// A phase that packs the rows of a call, tile by tile.
auto packing(const LinearKernels& kernels, const LinearInput& input, size_t k,
             const PackedRows& rows) {
    const size_t step = rows.tile_rows;
    return Phase{(input.rows + step - 1) / step, [&kernels, &input, k, rows, step](size_t t) {
                     pack_rows(kernels, input, k, t * step, std::min(step, input.rows - t * step),
                               rows.from(t * step));
                 }};
}

}  // namespace

void check_bf16(const LinearKernels& kernels) {
    check_argument(kernels.bf16.run,
                   "activations in bf16: this instruction set has no products of bf16");
}

void pack_row(const LinearKernels& kernels, const LinearInput& input, size_t k, size_t row,
              size_t tile_rows, uint16_t* out) {
    static thread_local LineBuffer<float> prepared;
    const float* x = prepare_row(kernels, input, k, row, prepared.resize(k));
    kernels.bf16.pack_row(x, k, tile_rows, out);
}

Bf16Block gated_block_of(const GatedMlp& mlp, const PackedRows& rows, size_t count,
                         const PackedRows& inner) {
    Bf16Block block;
    block.rows = rows;
    block.row_count = count;
    block.weights = mlp.gate;
    block.up = mlp.up;
    block.function = &mlp.function;
    block.end = mlp.gate->tiles();
    block.inner = inner;
    return block;
}

void run_block(const LinearKernels& kernels, Bf16Block block) {
    static thread_local LineBuffer<uint8_t> scratch;
    block.scratch = scratch.resize(kernels.bf16.scratch_bytes);
    kernels.bf16.run(kernels, block);
}

void run_by_groups(const LinearKernels& kernels, const Bf16Block& block) {
    const size_t step = kernels.bf16.item_tiles / (block.up ? gated_tiles(*block.up) : 1);
    for (size_t begin = block.begin; begin < block.end; begin += step) {
        const size_t end = std::min(begin + step, block.end);
        block.up ? run_gated_group(kernels, block, begin, end)
                 : run_group(kernels.bf16, block, begin, end);
    }
}

void bf16_linear(const LinearKernels& kernels, const LinearInput& input,
                 const LinearOutput* outputs, size_t count, const RotaryAngles& angles) {
    check_bf16(kernels);
    if (const OwnRows own(kernels.bf16, input.rows); own.blocks)
        return own.run([&](size_t first, size_t some) {
            run_own_rows(kernels, input, outputs, count, angles, first, some);
        });
    const size_t k = outputs[0].weights->k(), step = kernels.bf16.tile_rows;
    SharedRows& shared = SharedRows::mine();
    const PackedRows rows = resize(shared.rows, input.rows, k, step);
    shared.tiles.clear();
    size_t tiles = 0;
    for (size_t i = 0; i < count; ++i) {
        shared.tiles.push_back(outputs[i].weights->tiles());
        tiles += shared.tiles.back();
    }
    divide(kernels.bf16, shared.tiles, tiles_per_item(kernels.bf16, tiles), input.rows,
           shared.items);
    run_phases(
        packing(kernels, input, k, rows),
        Phase{shared.items.size(),
              [&](size_t i) {
                  const Item& item = shared.items[i];
                  run_item(kernels, item,
                           block_of(outputs[item.matrix], rows.from(item.first), item.first,
                                    item.count));
              }},
        Phase{have_heads(outputs, count) ? (input.rows + step - 1) / step : 0, [&](size_t t) {
                  const size_t some = std::min(step, input.rows - t * step);
                  finish_heads(kernels, outputs, count, t * step, some, angles);
              }});
}

void bf16_mlp(const LinearKernels& kernels, const LinearInput& input, const GatedMlp& mlp) {
    check_bf16(kernels);
    check_argument(mlp.gate->is_bf16() == mlp.up->is_bf16(),
                   "a gate and an up projection of which one is in bf16: must be both or none");
    const Bf16Kernels& bf16 = kernels.bf16;
    if (const OwnRows own(bf16, input.rows); own.blocks)
        return own.run(
            [&](size_t first, size_t some) { run_own_rows(kernels, input, mlp, first, some); });
    SharedRows& shared = SharedRows::mine();
    const PackedRows rows = resize(shared.rows, input.rows, mlp.gate->k(), bf16.tile_rows);
    const PackedRows inner = resize(shared.inner, input.rows, mlp.down->k(), bf16.tile_rows);
    const LinearOutput down{mlp.down, mlp.output, mlp.residual};
    shared.tiles = {mlp.down->tiles()};
    divide(bf16, shared.tiles, tiles_per_item(bf16, mlp.down->tiles()), input.rows, shared.items);
    shared.tiles = {mlp.gate->tiles()};
    const size_t each = gated_tiles(*mlp.gate);
    divide(bf16, shared.tiles, tiles_per_item(bf16, each * mlp.gate->tiles()) / each, input.rows,
           shared.gated_items);
    run_phases(packing(kernels, input, mlp.gate->k(), rows),
               Phase{shared.gated_items.size(),
                     [&](size_t i) {
                         const Item& item = shared.gated_items[i];
                         run_item(kernels, item,
                                  gated_block_of(mlp, rows.from(item.first), item.count,
                                                 inner.from(item.first)));
                     }},
               Phase{shared.items.size(), [&](size_t i) {
                         const Item& item = shared.items[i];
                         run_item(kernels, item,
                                  block_of(down, inner.from(item.first), item.first, item.count));
                     }});
}

}  // namespace pagewheel::kernels
