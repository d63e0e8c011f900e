// Tile registers as kernels use them, and plain C++ that does what the instructions do.
//
// A kernel for AMX is a template over a class of tiles: InstructionTiles (isa/amx/tiles.hpp),
// EmulatedTiles below, with which tests run it on any processor, or ModelTiles
// (isa/amx_model/tiles.hpp), which are those by AVX-512. All have
//     configure()              all eight tiles 16 rows of 64 bytes
//     zero<T>()                T = 0
//     load<T>(from, stride)    row i of T from `from` + i * stride bytes
//     load_streamed<T>(...)    the same of rows that are not read again soon
//     store<T>(to, stride)     and back
//     dpbf16<C, A, B>()        C [16, 16] f32 += A [16, 32] bf16 times B [16 pairs, 16][2] bf16
// B holds what follows along k side by side: row p has, for each of the 16 columns, elements 2p and
// 2p + 1 of k.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

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

/// Tiles in memory, and the instructions on them as Intel's manual describes their operation. What
/// the processor answers with a fault throws std::logic_error.
class EmulatedTiles {
public:
    void configure() { load_config(TileConfig::whole()); }

    template <int T>
    void zero() {
        zero(T);
    }
    template <int T>
    void load(const void* from, size_t stride) {
        load(T, from, stride);
    }
    template <int T>
    void load_streamed(const void* from, size_t stride) {
        load(T, from, stride);
    }
    template <int T>
    void store(void* to, size_t stride) const {
        store(T, to, stride);
    }
    template <int C, int A, int B>
    void dpbf16() {
        dpbf16(C, A, B);
    }

    /// LDTILECFG: palette 0 releases the tiles, else 1. All tiles are zero then.
    void load_config(const TileConfig& config);

private:
    struct Tile {
        size_t rows = 0, row_bytes = 0;
        uint8_t bytes[TileConfig::most_rows][TileConfig::most_row_bytes] = {};

        template <class T>
        T at(size_t row, size_t i) const {
            T value;
            std::memcpy(&value, bytes[row] + i * sizeof value, sizeof value);
            return value;
        }
        template <class T>
        void set(size_t row, size_t i, T value) {
            std::memcpy(bytes[row] + i * sizeof value, &value, sizeof value);
        }
    };

    Tile& tile(int i);
    const Tile& tile(int i) const;
    void check_product(int c, int a, int b) const;

    void zero(int t);
    void load(int t, const void* from, size_t stride);
    void store(int t, void* to, size_t stride) const;
    void dpbf16(int c, int a, int b);

    bool m_configured = false;
    std::array<Tile, TileConfig::tiles> m_tiles;
};

}  // namespace pagewheel::kernels
