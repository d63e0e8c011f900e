#include "kernels/logits.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "attention_world.hpp"

namespace pagewheel::kernels {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

std::vector<float> random_values(size_t n, unsigned seed) {
    std::mt19937 random(seed);
    return normal(n, random, 8.0f);
}

TEST(Argmax, FindsTheLargestForEverySizeAndInstructionSet) {
    for (Isa isa : available_isas())
        for (size_t n = 1; n < 200; ++n) {
            const auto x = random_values(n, unsigned(n));
            size_t expected = 0;
            for (size_t i = 0; i < n; ++i)
                if (x[i] > x[expected]) expected = i;
            EXPECT_EQ(argmax(x.data(), n, isa), expected) << isa_name(isa) << " n=" << n;
        }
}

TEST(Argmax, TakesTheFirstOfEquals) {
    for (Isa isa : available_isas()) {
        std::vector<float> x(100, -1.0f);
        x[37] = x[38] = x[99] = 5.0f;
        EXPECT_EQ(argmax(x.data(), x.size(), isa), 37u) << isa_name(isa);
        std::fill(x.begin(), x.end(), -infinity);
        EXPECT_EQ(argmax(x.data(), x.size(), isa), 0u) << isa_name(isa);
    }
}

TEST(Argmax, FindsTheFirstNaNWhereverItIs) {
    for (Isa isa : available_isas())
        for (size_t n : {1, 3, 40, 100}) {
            auto x = random_values(n, unsigned(n));
            for (size_t i = n; i-- > 0;) {
                x[i] = nan;
                EXPECT_EQ(argmax(x.data(), n, isa), i) << isa_name(isa) << " n=" << n;
            }
        }
}

TEST(Argmax, FindsInfinity) {
    for (Isa isa : available_isas())
        for (size_t n : {1, 3, 40, 100}) {
            std::vector<float> x(n, 3.0e38f);
            x[n / 2] = infinity;
            EXPECT_EQ(argmax(x.data(), n, isa), n / 2) << isa_name(isa) << " n=" << n;
        }
}

TEST(FindAbove, FindsEveryGreaterValueInOrder) {
    for (Isa isa : available_isas())
        for (size_t n : {0, 1, 7, 16, 33, 200}) {
            auto x = random_values(n, unsigned(n));
            for (size_t i = 0; i < n; i += 5) x[i] = i % 2 == 0 ? nan : -infinity;
            for (const float threshold : {-infinity, 0.0f, n > 3 ? x[3] : 1.0f, 5.0f, infinity}) {
                size_t at = 0;
                for (size_t i = 0; i < n; ++i) {
                    if (!(x[i] > threshold)) continue;
                    EXPECT_EQ(at = find_above(x.data(), at, n, threshold, isa), i)
                        << isa_name(isa) << " n=" << n;
                    ++at;
                }
                EXPECT_EQ(find_above(x.data(), at, n, threshold, isa), n);
            }
        }
}

TEST(SumExp, EqualsTheDefinitionInDouble) {
    for (Isa isa : available_isas())
        for (size_t n : {1, 7, 16, 33, 1000, 49152}) {
            const auto x = random_values(n, unsigned(n));
            const float shift = x[argmax_scalar(x.data(), n)];
            for (float scale : {0.2f, 1.0f, 3.0f}) {
                double expected = 0;
                for (float value : x) expected += std::exp(double(value - shift) * scale);
                EXPECT_NEAR(sum_exp(x.data(), n, shift, scale, isa) / expected, 1.0, 1e-5)
                    << isa_name(isa) << " n=" << n << " scale=" << scale;
            }
        }
}

TEST(SumExp, CountsMaskedLogitsAsZero) {
    for (Isa isa : available_isas()) {
        std::vector<float> x(64, -infinity);
        x[10] = 1.0f;
        x[20] = nan;
        EXPECT_FLOAT_EQ(float(sum_exp(x.data(), x.size(), 1.0f, 1.0f, isa)), 1.0f) << isa_name(isa);
    }
}

}  // namespace
}  // namespace pagewheel::kernels
