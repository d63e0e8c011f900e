// What panel_linear.cpp, which divides the work, and the kernels, which do it, say to each other.
// Internal to the kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/packed_linear.hpp"

namespace pagewheel::kernels {

struct LinearKernels;

/// Numbers in bf16, a k-block of one row of activations, and one of a panel.
///
/// A panel is a tile of weights (PackedLinear, 16 outputs) unpacked: its k-blocks one after the
/// other, each [16 pairs along k][16 outputs][2]. A pair and an output are a word, as products of
/// bf16 take them.
constexpr size_t row_block = PackedLinear::k_block;
constexpr size_t panel_block = PackedLinear::k_block * PackedLinear::tile_rows;

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

/// Where the products of rows and panels go: `output` = `initial` + products.
struct PanelOutput {
    float* output = nullptr;         // [rows, output_stride]
    const float* initial = nullptr;  // [rows, initial_stride] or null for 0; may be `output`
    size_t output_stride = 0, initial_stride = 0;
    size_t columns = 0;  // of the panels', that exist; the rest is neither read nor written
};

/// A range of k of some rows times that of some panels.
struct PanelProduct {
    const uint16_t* rows = nullptr;  // packed; of the first tile, where the range begins
    size_t tile_stride = 0;          // from tile to tile
    size_t row_count = 0;
    const uint16_t* panels = nullptr;  // their ranges, one after the other
    size_t panel_count = 0;
    size_t k_blocks = 0;
    PanelOutput output;
};

/// Some rows times panels [begin, end) of a matrix, over all of k. The result is
///     output = residual + products                 without `up`
///     inner = silu(products) * products with `up`  with it, rounded to bf16
struct PanelBlock {
    PackedRows rows;
    size_t row_count = 0;
    const PackedLinear* weights = nullptr;
    size_t begin = 0, end = 0;
    float* output = nullptr;          // [row_count, n] of the whole matrix
    const float* residual = nullptr;  // [row_count, n] or null; may be `output`
    const PackedLinear* up = nullptr;
    PackedRows inner;         // `begin` is even then, so that whole k-blocks are written
    void* scratch = nullptr;  // PanelKernels::scratch_bytes, on a cache line
};

/// Linear layers in bf16.
struct PanelKernels {
    size_t tile_rows = 0;    // of packed rows
    size_t item_panels = 0;  // of a block that threads share; a power of two, at least 4
    size_t most_rows = 0;    // of a block
    /// So many rows for each thread, or more, are divided by rows: each thread keeps its own
    /// through all weights, and unpacks these for itself. Fewer are divided by panels as well; with
    /// 0 all are.
    size_t least_own_rows = 0;
    size_t range_k_blocks = 0;  // of k, at most, that multiply() is given at a time
    size_t scratch_bytes = 0;

    /// Rounds k values of one row to nearest even, in whole k-blocks, to its place in a tile of
    /// `tile_rows` rows.
    void (*pack_row)(const float* x, size_t k, size_t tile_rows, uint16_t* out) = nullptr;
    /// K-blocks [begin, end) of a tile of weights: value * scale + minimum, rounded once more.
    void (*unpack)(const PackedLinear& weights, size_t tile, size_t begin, size_t end,
                   uint16_t* out) = nullptr;
    /// A block of rows. Denormals may count as 0. A row's sums are taken in an order of their own:
    /// they do not depend on which other rows and panels there are.
    void (*run)(const LinearKernels& kernels, const PanelBlock& block) = nullptr;
    /// What run_by_groups() multiplies with.
    void (*multiply)(const PanelProduct& product) = nullptr;
};

/// PanelKernels::run by unpack() and multiply(): groups of panels are unpacked, range by range, and
/// each range is multiplied with all rows while it lies in a cache.
void run_by_groups(const LinearKernels& kernels, const PanelBlock& block);

/// The scalar ones.
PanelKernels panel_reference();

}  // namespace pagewheel::kernels
