// How weights are packed, and what a row of them gives back.
#include "kernels/packed_linear.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "support/linear_matrix.hpp"

namespace pagewheel::kernels {
namespace {

TEST(PackedLinear, TakesTheSmallestFormThatIsExact) {
    std::mt19937 random(8);
    using Offset = PackedLinear::Offset;
    const auto packed = [&](const Format& format) {
        return PackedLinear(make_matrix(format, 32, 128, 0.01f, random).view);
    };
    EXPECT_EQ(packed({WeightType::i8, 32}).offset(), Offset::common);
    EXPECT_EQ(packed({WeightType::u4, 32, Zero::integer}).offset(), Offset::u8_zero_point);
    EXPECT_EQ(packed({WeightType::u4, 32, Zero::fractional}).offset(), Offset::f16_minimum);
    EXPECT_EQ(packed({WeightType::u4, 32, Zero::any}).offset(), Offset::f32_minimum);
    EXPECT_FALSE(packed({WeightType::u4, 32, Zero::none, false}).f16_scales());
    const PackedLinear q4_1 = packed({WeightType::u4, 32, Zero::fractional});
    EXPECT_EQ(q4_1.bytes(), 32 * 128 * 5 / 8);  // 4 bits and two f16 for 32
}

TEST(PackedLinear, RefusesGroupsThatCutAKBlock) {
    std::mt19937 random(9);
    Matrix m = make_matrix({WeightType::u4, 32}, 16, 128, 1, random);
    m.view.group = 48;
    EXPECT_THROW(PackedLinear{m.view}, std::runtime_error);
}

TEST(PackedLinear, GivesBackItsRowsWhereZeroPointsAreIntegers) {
    std::mt19937 random(10);
    for (const WeightType type : {WeightType::u4, WeightType::i4, WeightType::u8, WeightType::i8})
        for (const size_t group : {32, 64, 0})
            for (const Zero zero : {Zero::none, Zero::common, Zero::integer})
                for (const bool f16 : {true, false}) {
                    const Format format{type, group, zero, f16};
                    const size_t n = 35, k = 161;
                    const Matrix m = make_matrix(format, n, k, 0.01f, random);
                    const PackedLinear packed(m.view);
                    ASSERT_TRUE(packed.has_integer_zero_points()) << name_of(format);
                    std::vector<float> row(k);
                    for (size_t i = 0; i < n; ++i) {
                        packed.unpack_row(i, row.data());
                        for (size_t j = 0; j < k; ++j)
                            ASSERT_EQ(row[j], float(m.w[i * k + j])) << name_of(format);
                    }
                }
    for (const Zero zero : {Zero::fractional, Zero::any}) {
        const Matrix m = make_matrix({WeightType::u4, 32, zero}, 35, 161, 0.01f, random);
        EXPECT_FALSE(PackedLinear(m.view).has_integer_zero_points());
    }
}

}  // namespace
}  // namespace pagewheel::kernels
