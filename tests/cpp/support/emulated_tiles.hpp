// Tile registers in plain C++.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/tiles.hpp"

namespace pagewheel::kernels {

/// What all sets of emulated tiles did since EmulatedTiles::reset_uses().
struct TileUses {
    std::atomic<size_t> configured{0}, released{0};
    std::atomic<size_t> nested{0};  ///< configured while the thread had another set
};

/// Tiles in memory, and the instructions on them as Intel's manual describes their operation. What
/// the processor answers with a fault throws std::logic_error.
class EmulatedTiles {
public:
    static inline TileUses uses;
    static void reset_uses() { uses.configured = uses.released = uses.nested = 0; }

    EmulatedTiles() = default;
    EmulatedTiles(const EmulatedTiles&) = delete;
    EmulatedTiles& operator=(const EmulatedTiles&) = delete;
    ~EmulatedTiles() { release(); }

    void configure() {
        if (thread_has_tiles) ++uses.nested;
        thread_has_tiles = true;
        ++uses.configured;
        load_config(TileConfig::whole());
    }

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

    void release() {
        if (m_configured) ++uses.released;
        m_configured = thread_has_tiles = false;
    }

    static inline thread_local bool thread_has_tiles = false;

    bool m_configured = false;
    std::array<Tile, TileConfig::tiles> m_tiles;
};

}  // namespace pagewheel::kernels
