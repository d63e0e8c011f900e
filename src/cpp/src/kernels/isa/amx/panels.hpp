// Linear layers in bf16 over tile registers, for any class of tiles (kernels/tiles.hpp).
#pragma once

#include <algorithm>
#include <cstring>

#include "kernels/panels.hpp"
#include "kernels/tiles.hpp"

namespace pagewheel::kernels::amx {

constexpr size_t tile_size = TileConfig::most_rows;  // rows, and columns in f32

/// Sums of one tile of rows and one panel, which may end before the tile does.
template <class Tiles>
struct Sums {
    const PanelOutput& output;
    size_t row, column, rows, columns;  // that exist, counted from (row, column)

    bool is_whole() const { return rows == tile_size && columns == tile_size; }
    float* to(size_t r) const { return output.output + (row + r) * output.output_stride + column; }
    const float* from(size_t r) const {
        return output.initial + (row + r) * output.initial_stride + column;
    }

    template <int T>
    void load(Tiles& tiles) const {
        if (!output.initial) return tiles.template zero<T>();
        if (is_whole())
            return tiles.template load<T>(from(0), output.initial_stride * sizeof(float));
        float part[tile_size][tile_size] = {};
        for (size_t r = 0; r < rows; ++r) std::memcpy(part[r], from(r), columns * sizeof(float));
        tiles.template load<T>(part, sizeof part[0]);
    }
    template <int T>
    void store(Tiles& tiles) const {
        if (is_whole()) return tiles.template store<T>(to(0), output.output_stride * sizeof(float));
        float part[tile_size][tile_size];
        tiles.template store<T>(part, sizeof part[0]);
        for (size_t r = 0; r < rows; ++r) std::memcpy(to(r), part[r], columns * sizeof(float));
    }
};

/// One or two tiles of rows times one or two panels: tiles 0 to 3 hold the sums over the range, 4
/// and 5 rows, 6 and 7 weights.
template <class Tiles, bool two_tiles, bool two_panels>
void multiply_block(Tiles& tiles, const PanelProduct& product, size_t row, size_t panel) {
    const PanelOutput& output = product.output;
    const auto sums_at = [&](size_t r, size_t p) {
        const size_t first = row + r * tile_size, column = (panel + p) * tile_size;
        return Sums<Tiles>{output, first, column, std::min(tile_size, product.row_count - first),
                           std::min(tile_size, output.columns - column)};
    };
    sums_at(0, 0).template load<0>(tiles);
    if constexpr (two_panels) sums_at(0, 1).template load<1>(tiles);
    if constexpr (two_tiles) sums_at(1, 0).template load<2>(tiles);
    if constexpr (two_tiles && two_panels) sums_at(1, 1).template load<3>(tiles);

    constexpr size_t row_bytes = TileConfig::most_row_bytes;
    const uint16_t* x = product.rows + row / tile_size * product.tile_stride;
    const uint16_t* w = product.panels + panel * product.k_blocks * panel_block;
    const size_t next_panel = product.k_blocks * panel_block;
    for (size_t c = 0; c < product.k_blocks; ++c) {
        tiles.template load<4>(x, row_bytes);
        tiles.template load<6>(w, row_bytes);
        tiles.template dpbf16<0, 4, 6>();
        if constexpr (two_panels) {
            tiles.template load<7>(w + next_panel, row_bytes);
            tiles.template dpbf16<1, 4, 7>();
        }
        if constexpr (two_tiles) {
            tiles.template load<5>(x + product.tile_stride, row_bytes);
            tiles.template dpbf16<2, 5, 6>();
        }
        if constexpr (two_tiles && two_panels) tiles.template dpbf16<3, 5, 7>();
        x += tile_size * row_block;
        w += panel_block;
    }

    sums_at(0, 0).template store<0>(tiles);
    if constexpr (two_panels) sums_at(0, 1).template store<1>(tiles);
    if constexpr (two_tiles) sums_at(1, 0).template store<2>(tiles);
    if constexpr (two_tiles && two_panels) sums_at(1, 1).template store<3>(tiles);
}

/// 32 rows at a time pass by all panels. On paper, for a Sapphire Rapids (L1 48 KB, L2 2 MB a
/// core): a k-block of 32 rows is 2 KB and so is one of two panels, so over 32 k-blocks each is 64
/// KB, and neither stays in L1. Four products of 16 cycles load 4 KB then, 64 bytes a cycle, which
/// is all that L2 gives at best. Both would stay up to 11 k-blocks (44 KB), and rows alone would be
/// read from L1; but sums, 4 KB, are read and written once per range, 11 to 13 bytes a cycle more.
/// Which is faster is to be measured.
///
/// Sums are stored at the output's own stride. Where that is a multiple of 4 KB (1,024 floats), the
/// 16 lines of a tile fall into one set of L1, which holds 12. They need not stay there: before a
/// block's sums are read again, those of all other rows and panels have passed. In L2 (2,048 sets
/// of 16) the rows of a block at 8 KB are one line in each of 16 sets, twice. A load that is taken
/// for dependent on such a store, as their last 12 bits agree, waits once per range. A buffer would
/// store everything twice, so there is none.
template <class Tiles>
void multiply(const PanelProduct& product) {
    Tiles tiles;
    tiles.configure();
    for (size_t row = 0; row < product.row_count; row += 2 * tile_size)
        for (size_t panel = 0; panel < product.panel_count; panel += 2) {
            const bool two_tiles = row + tile_size < product.row_count;
            const bool two_panels = panel + 1 < product.panel_count;
            const auto block = two_tiles    ? two_panels ? multiply_block<Tiles, true, true>
                                                         : multiply_block<Tiles, true, false>
                               : two_panels ? multiply_block<Tiles, false, true>
                                            : multiply_block<Tiles, false, false>;
            block(tiles, product, row, panel);
        }
}

/// `others` with products on tiles: 256 outputs times up to 1,024 of k are half a megabyte.
template <class Tiles>
PanelKernels panel_kernels(PanelKernels others) {
    others.tile_rows = tile_size;
    others.group_panels = 16;
    others.range_k_blocks = 32;
    others.multiply = multiply<Tiles>;
    return others;
}

}  // namespace pagewheel::kernels::amx
