#include "sampling/candidate_filters.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace pagewheel {
namespace {

using Words = std::array<uint32_t, 4>;

// Of Random123's file kat_vectors, "philox4x32 10".
TEST(Philox, GivesTheKnownAnswers) {
    constexpr uint32_t all = 0xffffffff;
    EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
              (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
    EXPECT_EQ(philox({all, all, all, all}, {all, all}),
              (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
    EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
              (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(TokenRandom, EachSeedSequencePositionAndUseHasNumbersOfItsOwn) {
    std::set<double> seen;
    size_t count = 0;
    for (const uint64_t seed : {uint64_t(0), uint64_t(1), uint64_t(2), uint64_t(1) << 32})
        for (size_t index = 0; index < 20; ++index)
            for (size_t position = 0; position < 100; ++position)
                for (const Draw draw : {Draw::TOKEN, Draw::XTC}) {
                    seen.insert(TokenRandom(seed, index, position).uniform(draw));
                    ++count;
                }
    EXPECT_EQ(seen.size(), count);
}

TEST(TokenRandom, IsUniform) {
    constexpr size_t count = 200000, cells = 100;
    for (const Draw draw : {Draw::TOKEN, Draw::XTC}) {
        std::vector<size_t> counts(cells);
        for (size_t i = 0; i < count; ++i) {
            const double x = TokenRandom(3, 1, i).uniform(draw);
            ASSERT_TRUE(x >= 0 && x < 1);
            ++counts[size_t(x * double(cells))];
        }
        double statistic = 0;
        const double expected = double(count) / double(cells);
        for (const size_t n : counts) statistic += std::pow(double(n) - expected, 2) / expected;
        EXPECT_LT(std::abs(statistic - 99) / std::sqrt(2 * 99.0), 4.0);
    }
}

}  // namespace
}  // namespace pagewheel
