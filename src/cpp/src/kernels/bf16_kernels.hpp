// What bf16_linear.cpp, which divides the work, and the kernels, which do it, say to each other.
// Internal to the kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/packed_linear.hpp"

namespace pagewheel::kernels {

struct LinearKernels;
struct GateFunction;

/// Numbers in bf16, a k-block of one row of activations, and one of a weight tile.
///
/// A weight tile (PackedLinear, 16 outputs) is unpacked to bf16: its k-blocks one after the
/// other, each [16 pairs along k][16 outputs][2]. A pair and an output are a word, as products of
/// bf16 take them.
constexpr size_t row_block = PackedLinear::k_block;
constexpr size_t tile_block = PackedLinear::k_block * PackedLinear::tile_rows;

/// Rows of activations in tiles. A tile is its k-blocks one after the other, each [tile_rows][32].
/// What is past k is 0. A view.
struct PackedRows {
    uint16_t* numbers = nullptr;
    size_t tile_rows = 1;
    size_t tile_stride = 0;  // from tile to tile

    /// K-block `c` of a row.
    uint16_t* at(size_t row, size_t c) const {
        return numbers + row / tile_rows * tile_stride +
               (c * tile_rows + row % tile_rows) * row_block;
    }
    /// The rows from `row` on, which is the first of a tile.
    PackedRows from(size_t row) const { return {at(row, 0), tile_rows, tile_stride}; }
};

/// Where the products of rows and weight tiles go: `output` = `initial` + products.
struct Bf16Output {
    float* output = nullptr;         // [rows, output_stride]
    const float* initial = nullptr;  // [rows, initial_stride] or null for 0; may be `output`
    size_t output_stride = 0, initial_stride = 0;
    size_t columns = 0;  // of the tiles, that exist; the rest is neither read nor written
};

/// A range of k of some rows times that of some weight tiles.
struct Bf16Product {
    const uint16_t* rows = nullptr;  // packed; of the first tile, where the range begins
    size_t tile_stride = 0;          // from tile to tile
    size_t row_count = 0;
    const uint16_t* weights = nullptr;  // of the first weight tile, where the range begins
    size_t weight_stride = 0;           // from tile to tile
    size_t tile_count = 0;
    size_t k_blocks = 0;
    Bf16Output output;
};

/// Some rows times weight tiles [begin, end) of a matrix, over all of k. The result is
///     output = residual + products                      without `up`
///     inner = function(products, products with `up`)    with it, rounded to bf16
struct Bf16Block {
    PackedRows rows;
    size_t row_count = 0;
    const PackedLinear* weights = nullptr;
    size_t begin = 0, end = 0;
    float* output = nullptr;          // [row_count, stride], from the column of tile `begin` on
    const float* residual = nullptr;  // the same or null; may be `output`
    size_t stride = 0;
    const PackedLinear* up = nullptr;
    const GateFunction* function = nullptr;  // where there is `up`
    PackedRows inner;         // `begin` is even then, so that whole k-blocks are written
    void* scratch = nullptr;  // Bf16Kernels::scratch_bytes, on a cache line
};

/// Linear layers in bf16.
struct Bf16Kernels {
    size_t tile_rows = 0;   // of packed rows
    size_t item_tiles = 0;  // of a block that threads share; a power of two, at least 4
    size_t most_rows = 0;   // of a block
    /// So many rows for each thread, or more, are divided by rows: each thread keeps its own
    /// through all weights, and unpacks these for itself. Fewer are divided by tiles as well; with
    /// 0 all are.
    size_t least_own_rows = 0;
    size_t range_k_blocks = 0;  // of k, at most, that multiply() is given at a time
    size_t scratch_bytes = 0;

    /// Rounds k values of one row to nearest even, in whole k-blocks, to its place in a tile of
    /// `tile_rows` rows.
    void (*pack_row)(const float* x, size_t k, size_t tile_rows, uint16_t* out) = nullptr;
    /// K-blocks [begin, end) of a tile of weights: value * scale + minimum, rounded once more, or
    /// what is held in bf16 as it is.
    void (*unpack)(const PackedLinear& weights, size_t tile, size_t begin, size_t end,
                   uint16_t* out) = nullptr;
    /// A block of rows. Denormals may count as 0. A row's sums are taken in an order of their own:
    /// they do not depend on which other rows and tiles there are.
    void (*run)(const LinearKernels& kernels, const Bf16Block& block) = nullptr;
    /// What run_by_groups() multiplies with.
    void (*multiply)(const Bf16Product& product) = nullptr;
};

/// Bf16Kernels::run by unpack() and multiply(): groups of tiles are unpacked, range by range, and
/// each range is multiplied with all rows while it lies in a cache. Weights in bf16 are multiplied
/// where they are.
void run_by_groups(const LinearKernels& kernels, const Bf16Block& block);

/// The scalar ones.
Bf16Kernels bf16_reference();

}  // namespace pagewheel::kernels
