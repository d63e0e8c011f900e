// Tile registers as kernels use them.
//
// A kernel for AMX is a template over a class of tiles: InstructionTiles (isa/amx/tiles.hpp),
// ModelTiles (isa/amx_model/kernels.cpp), which are those by AVX-512, or EmulatedTiles
// (tests/cpp/support/emulated_tiles.hpp), with which tests run it on any processor. An object is a
// thread's tile registers: a kernel makes one, configures it, and releases the registers by its
// end, before anybody else's code runs on the thread. There are never two on a thread. All have
//     configure()              all eight tiles 16 rows of 64 bytes
//     zero<T>()                T = 0
//     load<T>(from, stride)    row i of T from `from` + i * stride bytes
//     load_streamed<T>(...)    the same of bytes that are not soon read again, past the L1 cache
//     store<T>(to, stride)     and back
//     dpbf16<C, A, B>()        C [16, 16] f32 += A [16, 32] bf16 times B [16 pairs, 16][2] bf16
// B holds what follows along k side by side: row p has, for each of the 16 columns, elements 2p and
// 2p + 1 of k.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pagewheel::kernels {

/// What LDTILECFG loads: of each tile its rows and the bytes of a row.
struct TileConfig {
    uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};

    static constexpr size_t tiles = 8, most_rows = 16, most_row_bytes = 64;

    /// All tiles at their largest.
    static constexpr TileConfig whole() {
        TileConfig config{};
        for (size_t tile = 0; tile < tiles; ++tile) {
            config.row_bytes[tile] = most_row_bytes;
            config.rows[tile] = most_rows;
        }
        return config;
    }
};
static_assert(sizeof(TileConfig) == 64);

}  // namespace pagewheel::kernels
