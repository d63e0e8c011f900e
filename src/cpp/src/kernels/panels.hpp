// What panel_linear.cpp, which divides the work, and the kernels, which do it, say to each other.
// Internal to the kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/packed_linear.hpp"

namespace pagewheel::kernels {

/// Numbers in bf16, a k-block of one row of activations, and one of a panel.
///
/// Packed rows lie in tiles of PanelKernels::tile_rows rows. A tile is its k-blocks one after the
/// other, each [tile_rows][32]. What is past k is 0.
///
/// A panel is a tile of weights (PackedLinear, 16 outputs) unpacked: its k-blocks one after the
/// other, each [16 pairs along k][16 outputs][2]. A pair and an output are a word, as products of
/// bf16 take them.
constexpr size_t row_block = PackedLinear::k_block;
constexpr size_t panel_block = PackedLinear::k_block * PackedLinear::tile_rows;

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

/// Linear layers in bf16: weights are unpacked range by range, and each range multiplied with many
/// rows while it lies in a cache.
struct PanelKernels {
    size_t tile_rows = 0;       // of packed rows
    size_t group_panels = 0;    // that are unpacked together; a power of two, at least 4
    size_t range_k_blocks = 0;  // of k, at most, that are unpacked at a time

    /// Rounds k values of one row to nearest even, in whole k-blocks, to its place in a tile of
    /// `tile_rows` rows.
    void (*pack_row)(const float* x, size_t k, size_t tile_rows, uint16_t* out) = nullptr;
    /// K-blocks [begin, end) of a tile of weights: value * scale + minimum, rounded once more.
    void (*unpack)(const PackedLinear& weights, size_t tile, size_t begin, size_t end,
                   uint16_t* out) = nullptr;
    /// Denormals may count as 0. A row's sums are taken in an order of their own: they do not
    /// depend on which other rows and panels there are.
    void (*multiply)(const PanelProduct& product) = nullptr;
};

/// The scalar ones.
PanelKernels panel_reference();

}  // namespace pagewheel::kernels
