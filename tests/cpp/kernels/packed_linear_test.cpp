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
    using Scale = PackedLinear::Scale;
    const auto packed = [&](const Format& format) {
        return PackedLinear(make_matrix(format, 32, 128, 0.01f, random).view);
    };
    EXPECT_EQ(packed({WeightType::i8, 32}).offset(), Offset::common);
    EXPECT_EQ(packed({WeightType::u4, 32, Zero::integer}).offset(), Offset::u8_zero_point);
    EXPECT_EQ(packed({WeightType::u4, 32, Zero::fractional}).offset(), Offset::f16_minimum);
    EXPECT_EQ(packed({WeightType::u4, 32, Zero::any}).offset(), Offset::f32_minimum);
    EXPECT_EQ(packed({WeightType::u4, 32, Zero::none, Scale::f32}).scale(), Scale::f32);
    for (const Scale scale : {Scale::e8m0, Scale::f16, Scale::f32})
        EXPECT_EQ(packed({WeightType::f4e2m1, 32, Zero::none, scale}).scale(), scale);
    EXPECT_EQ(packed({WeightType::u4, 32, Zero::none, Scale::e8m0}).scale(), Scale::f16);
    const PackedLinear q4_1 = packed({WeightType::u4, 32, Zero::fractional});
    EXPECT_EQ(q4_1.bytes(), 32 * 128 * 5 / 8);  // 4 bits and two f16 for 32
    const PackedLinear mxfp4 = packed({WeightType::f4e2m1, 32, Zero::none, Scale::e8m0});
    EXPECT_EQ(mxfp4.bytes(), 32 * 128 * 17 / 32);  // 4 bits, and a byte for 32
    for (const Format& format : float_formats())
        EXPECT_EQ(packed(format).bytes(), 32 * 128 * 2) << name_of(format);
}

TEST(PackedLinear, RefusesGroupsThatCutAKBlockAndZeroPointsOfFloats) {
    std::mt19937 random(9);
    Matrix m = make_matrix({WeightType::u4, 32}, 16, 128, 1, random);
    m.view.group = 48;
    EXPECT_THROW(PackedLinear{m.view}, std::runtime_error);
    m = make_matrix({WeightType::f4e2m1, 32, Zero::integer}, 16, 128, 1, random);
    EXPECT_THROW(PackedLinear{m.view}, std::runtime_error) << "zero points of f4e2m1";
    m = make_matrix({WeightType::f16, 0}, 16, 128, 1, random);
    m.view.scales = m.scales.data();
    EXPECT_THROW(PackedLinear{m.view}, std::runtime_error) << "scales of f16";
    m = make_matrix({WeightType::u8, 0}, 16, 128, 1, random);
    m.view.scales = nullptr;
    EXPECT_THROW(PackedLinear{m.view}, std::runtime_error) << "no scales of u8";
}

TEST(PackedLinear, GivesBackItsRowsWhereZeroPointsAreIntegers) {
    std::mt19937 random(10);
    for (const Format& format : all_formats()) {
        const size_t n = 35, k = 161;
        const Matrix m = make_matrix(format, n, k, 0.01f, random);
        const PackedLinear packed(m.view);
        const bool integers = format.zero != Zero::fractional && format.zero != Zero::any;
        ASSERT_EQ(packed.has_integer_zero_points(), integers) << name_of(format);
        std::vector<float> row(k);
        for (size_t i = 0; integers && i < n; ++i) {
            packed.unpack_row(i, row.data());
            for (size_t j = 0; j < k; ++j)
                ASSERT_EQ(row[j], float(m.w[i * k + j])) << name_of(format);
        }
    }
}

}  // namespace
}  // namespace pagewheel::kernels
