// The emulated tiles against what the manual says of the instructions, and these against them where
// the processor has them.
#include "kernels/tiles.hpp"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <cstring>
#include <random>
#include <stdexcept>
#include <vector>

#include "kernels/half.hpp"
#include "kernels/isa.hpp"
#if defined(__x86_64__)
#include "kernels/isa/amx/tiles.hpp"
#include "support/emulated_tiles.hpp"
#endif

namespace pagewheel::kernels {
namespace {

/// A product's three matrices as tiles hold them.
template <class Element, class Sum>
struct Operands {
    static constexpr size_t per_word = 4 / sizeof(Element);
    Element a[16][16 * per_word] = {};  // [row][k]
    Element b[16][16 * per_word] = {};  // [k / per_word][column, k % per_word]
    Sum c[16][16] = {};

    template <class Product>
    void run(const Product& product) {
        load_and_run<EmulatedTiles>(product);
    }
    template <class Tiles, class Product>
    void load_and_run(const Product& product) {
        Tiles tiles;
        tiles.configure();
        tiles.template load<0>(c, 64);
        tiles.template load<1>(a, 64);
        tiles.template load<2>(b, 64);
        product(tiles);
        tiles.template store<0>(c, 64);
    }
};

const auto product_of_bf16 = [](auto& tiles) { tiles.template dpbf16<0, 1, 2>(); };

TEST(EmulatedTiles, MultiplyRowsWithColumnsInPairs) {
    std::mt19937 random(1);
    Operands<uint16_t, float> operands;
    for (auto& row : operands.a)
        for (uint16_t& x : row) x = bf16_of_float(float(int(random() % 17) - 8));
    for (auto& row : operands.b)
        for (uint16_t& x : row) x = bf16_of_float(float(int(random() % 17) - 8));
    for (auto& row : operands.c)
        for (float& x : row) x = float(random() % 100);
    const auto before = operands;
    operands.run(product_of_bf16);
    for (size_t m = 0; m < 16; ++m)
        for (size_t n = 0; n < 16; ++n) {
            float expected = before.c[m][n];
            for (size_t k = 0; k < 32; ++k)
                expected +=
                    float_of_bf16(before.a[m][k]) * float_of_bf16(before.b[k / 2][2 * n + k % 2]);
            ASSERT_EQ(operands.c[m][n], expected) << m << ", " << n;
        }
}

// Even and odd elements apart: 2^24 + 1 + 1 is 2^24 one after the other, and 2^24 + 2 in this
// order.
TEST(EmulatedTiles, SumEvenAndOddElementsApartBeforeTheyAddThem) {
    Operands<uint16_t, float> operands;
    for (size_t k : {0, 1, 3}) operands.b[k / 2][k % 2] = bf16_of_float(1);
    operands.a[0][0] = bf16_of_float(0x1p24f);
    operands.a[0][1] = operands.a[0][3] = bf16_of_float(1);
    operands.run(product_of_bf16);
    EXPECT_EQ(operands.c[0][0], 0x1p24f + 2);
    // The sum of a product is rounded before C joins it.
    operands.c[0][0] = -0x1p24f;
    operands.a[0][3] = 0;
    operands.run(product_of_bf16);
    EXPECT_EQ(operands.c[0][0], 0.0f);
}

TEST(EmulatedTiles, TakeDenormalsForZero) {
    Operands<uint16_t, float> operands;
    operands.b[0][0] = operands.b[0][1] = bf16_of_float(0x1p100f);
    operands.a[0][0] = bf16_of_float(0x1p-130f);  // an operand
    operands.c[0][0] = FLT_MIN / 2;
    operands.run(product_of_bf16);
    EXPECT_EQ(operands.c[0][0], 0.0f);
    operands.b[0][0] = bf16_of_float(0x1p-70f);  // a result
    operands.a[0][0] = bf16_of_float(0x1p-70f);
    operands.run(product_of_bf16);
    EXPECT_EQ(operands.c[0][0], 0.0f);
}

TEST(EmulatedTiles, SpoilOnlyTheRowOfAValueThatIsNotFinite) {
    Operands<uint16_t, float> operands;
    for (auto& row : operands.a)
        for (uint16_t& x : row) x = bf16_of_float(1);
    for (auto& row : operands.b)
        for (uint16_t& x : row) x = bf16_of_float(1);
    operands.a[3][7] = bf16_of_float(NAN);
    operands.run(product_of_bf16);
    for (size_t m = 0; m < 16; ++m)
        for (const float sum : operands.c[m]) EXPECT_EQ(std::isnan(sum), m == 3) << m;
}

TEST(EmulatedTiles, ZeroWhatLiesPastATileThatIsNotWhole) {
    TileConfig config = TileConfig::whole();
    config.rows[0] = 2;
    config.row_bytes[0] = 8;
    EmulatedTiles tiles;
    tiles.load_config(config);
    uint8_t from[2][8], to[2][8] = {};
    std::memset(from, 7, sizeof from);
    tiles.load<0>(from, 8);
    tiles.store<0>(to, 8);
    EXPECT_EQ(std::memcmp(from, to, sizeof to), 0);
    tiles.zero<0>();
    tiles.store<0>(to, 8);
    EXPECT_EQ(to[1][7], 0);
}

TEST(EmulatedTiles, RefuseWhatTheProcessorFaultsOn) {
    EmulatedTiles tiles;
    EXPECT_THROW(tiles.zero<0>(), std::logic_error);  // nothing configured
    tiles.configure();
    EXPECT_THROW((tiles.dpbf16<0, 1, 1>()), std::logic_error);
    EXPECT_THROW((tiles.dpbf16<1, 1, 2>()), std::logic_error);

    TileConfig config = TileConfig::whole();
    config.rows[1] = 8;  // A has fewer rows than C
    tiles.load_config(config);
    EXPECT_THROW((tiles.dpbf16<0, 1, 2>()), std::logic_error);
    config = TileConfig::whole();
    config.row_bytes[1] = 32;  // A has half the pairs that B has
    tiles.load_config(config);
    EXPECT_THROW((tiles.dpbf16<0, 1, 2>()), std::logic_error);

    const auto refuses = [&](auto change) {
        TileConfig wrong = TileConfig::whole();
        change(wrong);
        EXPECT_THROW(tiles.load_config(wrong), std::logic_error);
    };
    refuses([](TileConfig& c) { c.palette = 2; });
    refuses([](TileConfig& c) { c.start_row = 1; });
    refuses([](TileConfig& c) { c.reserved[3] = 1; });
    refuses([](TileConfig& c) { c.rows[2] = 17; });
    refuses([](TileConfig& c) { c.row_bytes[2] = 68; });
    refuses([](TileConfig& c) { c.rows[2] = 0; });  // bytes without rows
    refuses([](TileConfig& c) { c.rows[8] = 1, c.row_bytes[8] = 4; });

    TileConfig none;
    none.palette = 0;
    tiles.load_config(none);
    EXPECT_THROW(tiles.zero<0>(), std::logic_error);
}

#if defined(__x86_64__)
TEST(InstructionTiles, DoWhatTheEmulatedOnesDo) {
    if (detected_isa().name() != std::string("amx")) GTEST_SKIP() << "no AMX";
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    Operands<uint16_t, float> halves;
    for (auto& row : halves.a)
        for (uint16_t& x : row) x = bf16_of_float(normal(random));
    for (auto& row : halves.b)
        for (uint16_t& x : row) x = bf16_of_float(normal(random));
    auto expected = halves;
    expected.run(product_of_bf16);
    halves.load_and_run<amx::InstructionTiles>(product_of_bf16);
    EXPECT_EQ(std::memcmp(halves.c, expected.c, sizeof halves.c), 0);
}
#endif

}  // namespace
}  // namespace pagewheel::kernels
