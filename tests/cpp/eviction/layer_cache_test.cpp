// Blocks as OpenVINO's attention lays them out: moved as they are, keys rotated where they lie.
#include "eviction/layer_cache.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "kernels/half.hpp"

namespace pagewheel {
namespace {

using kernels::CacheFormat;

constexpr size_t block_size = 16, heads = 2, key_size = 10, value_size = 6, num_blocks = 4;

size_t bytes_of(CacheFormat format) {
    return format == CacheFormat::f32 ? 4 : 2;
}

/// What a format makes of a number that needs no rounding in any.
void store(CacheFormat format, float value, uint8_t* to) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    if (format == CacheFormat::bf16) bits >>= 16;
    if (format == CacheFormat::f16) bits = kernels::half_of_float(value);
    std::memcpy(to, &bits, bytes_of(format));
}

/// Blocks whose key and value elements are small whole numbers.
struct Blocks {
    explicit Blocks(CacheFormat format)
        : keys(num_blocks * heads * block_size * key_size * bytes_of(format)),
          values(num_blocks * heads * block_size * value_size * bytes_of(format)) {
        std::mt19937 random(3);
        for (std::vector<uint8_t>* memory : {&keys, &values})
            for (size_t i = 0; i < memory->size(); i += bytes_of(format))
                store(format, float(int(random() % 64) - 32), memory->data() + i);
    }
    std::vector<uint8_t> keys, values;
};

LayerCache cache_of(Blocks& blocks, CacheFormat format, LayerRotary rotary = {}) {
    CacheLayer layer;
    layer.layout = {format, block_size, heads, key_size, value_size};
    layer.rotary = rotary;
    return LayerCache(layer, blocks.keys.data(), blocks.values.data(), BlockLayout::rows);
}

constexpr CacheFormat formats[] = {CacheFormat::f32, CacheFormat::bf16, CacheFormat::f16};

TEST(LayerCache, MovesRowsOfTokensBitByBit) {
    for (CacheFormat format : formats) {
        Blocks before(format), after(format);
        const std::vector<BlockId> table{2, 0, 3};
        // Slots 20 to 45 close up to 10 to 35, across blocks.
        cache_of(after, format).move_tokens(table, 20, 10, 26);
        for (size_t slot = 0; slot < 3 * block_size; ++slot) {
            const size_t from = slot >= 10 && slot < 36 ? slot + 10 : slot;
            for (size_t head = 0; head < heads; ++head) {
                const auto row = [&](std::vector<uint8_t>& memory, size_t s, size_t size) {
                    const size_t at = (size_t(table[s / block_size]) * heads + head) * block_size +
                                      s % block_size;
                    return memory.data() + at * size * bytes_of(format);
                };
                EXPECT_EQ(
                    std::memcmp(row(after.keys, slot, key_size), row(before.keys, from, key_size),
                                key_size * bytes_of(format)),
                    0)
                    << slot;
                EXPECT_EQ(std::memcmp(row(after.values, slot, value_size),
                                      row(before.values, from, value_size),
                                      value_size * bytes_of(format)),
                          0)
                    << slot;
            }
        }
        EXPECT_TRUE(std::equal(after.keys.begin() + long(after.keys.size() / 4),
                               after.keys.begin() + long(after.keys.size() / 2),
                               before.keys.begin() + long(after.keys.size() / 4)));  // block 1
    }
}

TEST(LayerCache, RotatesKeysBackInPlace) {
    for (CacheFormat format : formats)
        for (bool interleaved : {false, true})
            for (size_t dims : {size_t(10), size_t(6)}) {
                RotaryKind kind{dims, interleaved, {}};
                for (size_t i = 0; i < dims / 2; ++i)
                    kind.inverse_frequencies.push_back(double(float(std::pow(0.3, double(i)))));
                RotationTable angles(kind);
                angles.grow(40);
                Blocks blocks(format);
                const LayerCache cache = cache_of(blocks, format, {{dims, interleaved, {}}, 0});
                const std::vector<BlockId> table{3, 1};
                const std::vector<int32_t> deltas = [] {
                    std::vector<int32_t> d(21);
                    for (size_t i = 0; i < d.size(); ++i) d[i] = int32_t(i % 3 * 20);
                    return d;
                }();
                std::vector<float> before(2 * block_size * heads * key_size), after(before.size());
                cache.read_keys(table, 0, 2 * block_size, before.data());
                cache.rotate_back(table, deltas, angles);
                cache.read_keys(table, 0, 2 * block_size, after.data());
                const double digits = format == CacheFormat::f32   ? 1e-6
                                      : format == CacheFormat::f16 ? 0x1p-11
                                                                   : 0x1p-8;
                for (size_t row = 0; row < 2 * block_size * heads; ++row) {
                    const size_t slot = row / heads;
                    const double delta = slot < deltas.size() ? deltas[slot] : 0;
                    const float *x = before.data() + row * key_size,
                                *y = after.data() + row * key_size;
                    for (size_t i = 0; i < dims / 2; ++i) {
                        const size_t a = interleaved ? 2 * i : i,
                                     b = interleaved ? 2 * i + 1 : i + dims / 2;
                        const double angle = -delta * kind.inverse_frequencies[i];
                        const double norm = std::hypot(double(x[a]), double(x[b]));
                        EXPECT_NEAR(y[a], x[a] * std::cos(angle) - x[b] * std::sin(angle),
                                    norm * digits);
                        EXPECT_NEAR(y[b], x[a] * std::sin(angle) + x[b] * std::cos(angle),
                                    norm * digits);
                    }
                    for (size_t i = dims; i < key_size; ++i) EXPECT_EQ(y[i], x[i]);
                    if (delta == 0) {
                        EXPECT_TRUE(std::equal(x, x + key_size, y));
                    }
                }
            }
}

TEST(LayerRotary, TakesRotationBackToPairsInHalves) {
    constexpr size_t dims = 6, rows = 3;
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (bool interleaved : {false, true})
        for (int64_t position : {0, 1, 5000}) {
            const LayerRotary rotary{{dims, interleaved, {1.0, 0.25, 0.0625}}, 0};
            std::vector<float> before(rows * key_size), rotated(before.size());
            for (float& x : before) x = normal(random);
            rotated = before;
            for (size_t row = 0; row < before.size(); row += key_size)
                for (size_t i = 0; i < dims / 2; ++i) {
                    const double angle = double(position) * rotary.inverse_frequencies[i];
                    const double a = before[row + i], b = before[row + i + dims / 2];
                    rotated[row + (interleaved ? 2 * i : i)] =
                        float(a * std::cos(angle) - b * std::sin(angle));
                    rotated[row + (interleaved ? 2 * i + 1 : i + dims / 2)] =
                        float(a * std::sin(angle) + b * std::cos(angle));
                }
            rotary.unrotate(position, rows, key_size, rotated.data());
            for (size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(rotated[i], before[i], 1e-6);
        }
}

}  // namespace
}  // namespace pagewheel
