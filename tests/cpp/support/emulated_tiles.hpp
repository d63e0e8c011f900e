// Tile registers in plain C++.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/tiles.hpp"

namespace pagewheel::kernels {

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
