#include "support/emulated_tiles.hpp"

#include <cfloat>
#include <cmath>

#include "base/check.hpp"
#include "kernels/half.hpp"

namespace pagewheel::kernels {
namespace {

constexpr size_t most = TileConfig::most_row_bytes / 2;

struct Numbers {
    float at[TileConfig::most_rows][most];
    float smallest = 1, largest = 1;  ///< of those that are not 0; infinity for what is no number
};

/// Denormals count as zero, as operands and as results.
[[gnu::always_inline]] inline float flushed(float x) {
    return std::fabs(x) < FLT_MIN ? std::copysign(0.0f, x) : x;
}

/// at[i] += row[2 p + i % 2] * w[p][i] for each pair p, each step rounded once: the products are
/// exact. Most of the time of tests on emulated tiles goes here. What is read was loaded already,
/// so sanitizers leave it out.
__attribute__((no_sanitize("address", "undefined"))) void add_exact_products(const float* row,
                                                                             const float (*w)[most],
                                                                             size_t pairs,
                                                                             float* at) {
    float sums[most] = {};
    for (size_t p = 0; p < pairs; ++p)
        for (size_t n = 0; n < most; n += 2) {
            sums[n] = flushed(row[2 * p] * w[p][n] + sums[n]);
            sums[n + 1] = flushed(row[2 * p + 1] * w[p][n + 1] + sums[n + 1]);
        }
    std::memcpy(at, sums, sizeof sums);
}

}  // namespace

void EmulatedTiles::load_config(const TileConfig& config) {
    check_invariant(config.palette <= 1, "tiles: palette ", int(config.palette), ": 0 or 1");
    check_invariant(config.start_row == 0, "tiles: start row ", int(config.start_row), ": 0");
    for (const uint8_t byte : config.reserved)
        check_invariant(byte == 0, "tiles: reserved bytes must be 0");
    for (size_t i = 0; i < 16; ++i) {
        const size_t rows = config.rows[i], row_bytes = config.row_bytes[i];
        const bool exists = config.palette == 1 && i < TileConfig::tiles;
        check_invariant(rows <= (exists ? TileConfig::most_rows : 0) &&
                            row_bytes <= (exists ? TileConfig::most_row_bytes : 0) &&
                            (rows == 0) == (row_bytes == 0),
                        "tiles: tile ", i, " of ", rows, " rows of ", row_bytes, " bytes");
    }
    for (size_t i = 0; i < TileConfig::tiles; ++i) {
        m_tiles[i] = Tile();
        m_tiles[i].rows = config.rows[i];
        m_tiles[i].row_bytes = config.row_bytes[i];
    }
    if (config.palette == 0) release();
    m_configured = config.palette == 1;
}

const EmulatedTiles::Tile& EmulatedTiles::tile(int i) const {
    check_invariant(m_configured && m_tiles[size_t(i)].rows > 0, "tiles: tile ", i,
                    " is not configured");
    return m_tiles[size_t(i)];
}

EmulatedTiles::Tile& EmulatedTiles::tile(int i) {
    return const_cast<Tile&>(static_cast<const EmulatedTiles&>(*this).tile(i));
}

void EmulatedTiles::zero(int t) {
    std::memset(tile(t).bytes, 0, sizeof tile(t).bytes);
}

void EmulatedTiles::load(int t, const void* from, size_t stride) {
    zero(t);  // rows and bytes past the tile's end become zero
    Tile& to = tile(t);
    for (size_t row = 0; row < to.rows; ++row)
        std::memcpy(to.bytes[row], static_cast<const uint8_t*>(from) + row * stride, to.row_bytes);
}

void EmulatedTiles::store(int t, void* to, size_t stride) const {
    const Tile& from = tile(t);
    for (size_t row = 0; row < from.rows; ++row)
        std::memcpy(static_cast<uint8_t*>(to) + row * stride, from.bytes[row], from.row_bytes);
}

void EmulatedTiles::check_product(int c, int a, int b) const {
    check_invariant(c != a && a != b && c != b, "tiles: a product of tiles ", c, ", ", a, " and ",
                    b, ": must differ");
    check_invariant(tile(c).row_bytes % 4 == 0 && tile(a).row_bytes % 4 == 0 &&
                        tile(c).rows == tile(a).rows && tile(a).row_bytes / 4 == tile(b).rows &&
                        tile(c).row_bytes == tile(b).row_bytes,
                    "tiles: the shapes of ", c, ", ", a, " and ", b, " give no product");
}

/// Even and odd elements of k have a sum each, from zero on. The two are added, and that to C.
/// Each step rounds to nearest even.
void EmulatedTiles::dpbf16(int c, int a, int b) {
    check_product(c, a, b);
    Tile& sums = tile(c);
    const auto numbers_of = [](const Tile& from) {  // once, not for each of the 16 products of each
        Numbers numbers;
        for (size_t row = 0; row < TileConfig::most_rows; ++row)
            for (size_t i = 0; i < most; ++i) {
                const float x = flushed(float_of_bf16(from.at<uint16_t>(row, i)));
                numbers.at[row][i] = x;
                const float size = std::fabs(x) < 0x1p120f ? std::fabs(x) : HUGE_VALF;
                if (size > 0 && size < numbers.smallest) numbers.smallest = size;
                if (size > numbers.largest) numbers.largest = size;
            }
        return numbers;
    };
    const Numbers left = numbers_of(tile(a)), right = numbers_of(tile(b));
    // No product is denormal, no sum of 32 overflows.
    const bool exact =
        left.smallest * right.smallest >= FLT_MIN && double{left.largest} * right.largest < 0x1p120;
    const size_t columns = sums.row_bytes / 4, pairs = tile(b).rows;
    for (size_t m = 0; m < sums.rows; ++m) {
        float at[most] = {};  // an even and an odd sum for each column
        if (exact) {
            add_exact_products(left.at[m], right.at, pairs, at);
        } else {
            for (size_t p = 0; p < pairs; ++p)
                for (size_t n = 0; n < 2 * columns; ++n)
                    at[n] = flushed(std::fma(left.at[m][2 * p + n % 2], right.at[p][n], at[n]));
        }
        for (size_t n = 0; n < columns; ++n) {
            const float sum = flushed(sums.at<float>(m, n));
            sums.set(m, n, flushed(sum + flushed(at[2 * n] + at[2 * n + 1])));
        }
    }
}

}  // namespace pagewheel::kernels
