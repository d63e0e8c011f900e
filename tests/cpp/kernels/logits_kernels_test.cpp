#include "kernels/logits.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "support/kernel_access.hpp"
#include "support/random_logits.hpp"

namespace pagewheel::kernels {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

TEST(Argmax, FindsTheLargestForEverySizeAndInstructionSet) {
    for (Isa isa : available_isas())
        for (size_t n = 1; n < 200; ++n) {
            const auto x = random_logits(n, unsigned(n), 8.0f);
            size_t expected = 0;
            for (size_t i = 0; i < n; ++i)
                if (x[i] > x[expected]) expected = i;
            EXPECT_EQ(logits_kernels(isa).argmax(x.data(), n), expected)
                << isa.name() << " n=" << n;
        }
}

TEST(Argmax, TakesTheFirstOfEquals) {
    for (Isa isa : available_isas()) {
        std::vector<float> x(100, -1.0f);
        x[37] = x[38] = x[99] = 5.0f;
        EXPECT_EQ(logits_kernels(isa).argmax(x.data(), x.size()), 37u) << isa.name();
        std::fill(x.begin(), x.end(), -infinity);
        EXPECT_EQ(logits_kernels(isa).argmax(x.data(), x.size()), 0u) << isa.name();
    }
}

TEST(Argmax, FindsTheFirstNaNWhereverItIs) {
    for (Isa isa : available_isas())
        for (size_t n : {1, 3, 40, 100}) {
            auto x = random_logits(n, unsigned(n), 8.0f);
            for (size_t i = n; i-- > 0;) {
                x[i] = nan;
                EXPECT_EQ(logits_kernels(isa).argmax(x.data(), n), i) << isa.name() << " n=" << n;
            }
        }
}

TEST(Argmax, FindsInfinity) {
    for (Isa isa : available_isas())
        for (size_t n : {1, 3, 40, 100}) {
            std::vector<float> x(n, 3.0e38f);
            x[n / 2] = infinity;
            EXPECT_EQ(logits_kernels(isa).argmax(x.data(), n), n / 2) << isa.name() << " n=" << n;
        }
}

TEST(FindAbove, FindsEveryGreaterValueInOrder) {
    for (Isa isa : available_isas())
        for (size_t n : {0, 1, 7, 16, 33, 200}) {
            auto x = random_logits(n, unsigned(n), 8.0f);
            for (size_t i = 0; i < n; i += 5) x[i] = i % 2 == 0 ? nan : -infinity;
            for (const float threshold : {-infinity, 0.0f, n > 3 ? x[3] : 1.0f, 5.0f, infinity}) {
                size_t at = 0;
                for (size_t i = 0; i < n; ++i) {
                    if (!(x[i] > threshold)) continue;
                    EXPECT_EQ(at = logits_kernels(isa).find_above(x.data(), at, n, threshold), i)
                        << isa.name() << " n=" << n;
                    ++at;
                }
                EXPECT_EQ(logits_kernels(isa).find_above(x.data(), at, n, threshold), n);
            }
        }
}

TEST(SumExp, EqualsTheDefinitionInDouble) {
    for (Isa isa : available_isas())
        for (size_t n : {1, 7, 16, 33, 1000, 49152}) {
            const auto x = random_logits(n, unsigned(n), 8.0f);
            const float shift = x[scalar_logits.argmax(x.data(), n)];
            for (float scale : {0.2f, 1.0f, 3.0f}) {
                double expected = 0;
                for (float value : x) expected += std::exp(double(value - shift) * scale);
                EXPECT_NEAR(logits_kernels(isa).sum_exp(x.data(), n, shift, scale) / expected, 1.0,
                            1e-5)
                    << isa.name() << " n=" << n << " scale=" << scale;
            }
        }
}

TEST(SumExp, CountsMaskedLogitsAsZero) {
    for (Isa isa : available_isas()) {
        std::vector<float> x(64, -infinity);
        x[10] = 1.0f;
        x[20] = nan;
        EXPECT_FLOAT_EQ(float(logits_kernels(isa).sum_exp(x.data(), x.size(), 1.0f, 1.0f)), 1.0f)
            << isa.name();
    }
}

/// Values with equals, minus infinity and other signs.
std::vector<float> mixed_logits(size_t n) {
    std::vector<float> x = random_logits(n, unsigned(n), 3.0f);
    for (size_t i = 0; i < n; i += 7) x[i] = -infinity;
    for (size_t i = 3; i < n; i += 5) x[i] = 1.25f;
    return x;
}
constexpr size_t sizes[] = {1, 7, 8, 15, 16, 17, 33, 255, 256, 257, 1000, 1024, 5000};

TEST(FindMaxima, HasTheLargestOfEachGroupAndSeesNaN) {
    for (Isa isa : available_isas())
        for (size_t n : sizes) {
            auto x = mixed_logits(n);
            std::vector<float> found((n + group_size - 1) / group_size), expected;
            for (size_t begin = 0; begin < n; begin += group_size)
                expected.push_back(
                    *std::max_element(x.begin() + ptrdiff_t(begin),
                                      x.begin() + ptrdiff_t(std::min(begin + group_size, n))));
            EXPECT_TRUE(logits_kernels(isa).find_maxima(x.data(), n, found.data()));
            EXPECT_EQ(found, expected) << isa.name() << " n=" << n;
            for (size_t i : {size_t(0), n / 2, n - 1}) {
                auto bad = x;
                bad[i] = nan;
                EXPECT_FALSE(logits_kernels(isa).find_maxima(bad.data(), n, found.data()));
            }
        }
}

TEST(Weigh, GivesEachTermOfTheSum) {
    for (Isa isa : available_isas())
        for (size_t n : sizes) {
            const auto x = mixed_logits(n);
            const float shift = x[scalar_logits.argmax(x.data(), n)];
            if (!std::isfinite(shift)) continue;
            for (float scale : {0.2f, 1.0f, 30.0f}) {
                std::vector<float> weights(n);
                const double sum =
                    logits_kernels(isa).weigh(x.data(), n, shift, scale, weights.data());
                EXPECT_NEAR(sum / logits_kernels(isa).sum_exp(x.data(), n, shift, scale), 1.0,
                            1e-6);
                for (size_t i = 0; i < n; ++i) {
                    const double exact = std::exp(double(x[i] - shift) * double(scale));
                    EXPECT_NEAR(weights[i], exact, exact * 1e-5 + 2e-38) << isa.name();
                }
            }
        }
}

TEST(KeepBetween, EqualsItsDefinitionForEveryKindOfView) {
    for (Isa isa : available_isas())
        for (size_t n : sizes)
            for (const bool has_weights : {false, true})
                for (const bool has_ids : {false, true}) {
                    auto x = mixed_logits(n), weights = random_logits(n, 3, 1.0f);
                    std::vector<uint32_t> ids(n);
                    for (size_t i = 0; i < n; ++i) ids[i] = uint32_t(3 * i + 1);
                    const TokenView view{x.data(), has_weights ? weights.data() : nullptr,
                                         has_ids ? ids.data() : nullptr, n, 50};
                    for (const auto& [low, high] : std::vector<std::pair<float, float>>{
                             {-1.0f, 2.0f}, {1.25f, 1.25f}, {-3.0e38f, 3.0e38f}, {50.0f, 60.0f}}) {
                        std::vector<float> lists[4];
                        std::vector<uint32_t> numbers[2];
                        for (auto& list : lists) list.resize(n + TokenColumns::slack);
                        for (auto& list : numbers) list.resize(n + TokenColumns::slack);
                        const Kept expected = scalar_logits.keep_between(
                            view, low, high, {lists[0].data(), lists[1].data(), numbers[0].data()});
                        const Kept found = logits_kernels(isa).keep_between(
                            view, low, high, {lists[2].data(), lists[3].data(), numbers[1].data()});
                        ASSERT_EQ(found.count, expected.count) << isa.name() << " n=" << n;
                        EXPECT_NEAR(found.inside, expected.inside, 1e-3);
                        EXPECT_NEAR(found.above, expected.above, 1e-3);
                        for (size_t i = 0; i < found.count; ++i) {
                            ASSERT_EQ(lists[2][i], lists[0][i]);
                            ASSERT_EQ(lists[3][i], lists[1][i]);
                            ASSERT_EQ(numbers[1][i], numbers[0][i]);
                        }
                    }
                }
}

TEST(KeepBetween, PacksIntoTheViewItself) {
    for (Isa isa : available_isas()) {
        auto x = mixed_logits(999), weights = random_logits(999, 3, 1.0f);
        std::vector<uint32_t> ids(999 + TokenColumns::slack);
        for (size_t i = 0; i < 999; ++i) ids[i] = uint32_t(i);
        std::vector<float> expected;
        for (float value : x)
            if (value >= 0 && value <= 4) expected.push_back(value);
        x.resize(ids.size()), weights.resize(ids.size());
        const Kept kept =
            logits_kernels(isa).keep_between({x.data(), weights.data(), ids.data(), 999}, 0, 4,
                                             {x.data(), weights.data(), ids.data()});
        x.resize(kept.count);
        EXPECT_EQ(x, expected) << isa.name();
    }
}

TEST(SumsOverLogits, EqualTheScalarOnes) {
    for (Isa isa : available_isas())
        for (size_t n : sizes) {
            const auto x = mixed_logits(n);
            std::vector<float> weights(n), found(n), expected(n);
            scalar_logits.weigh(x.data(), n, 12.0f, 0.5f, weights.data());
            const LogitsKernels& kernels = logits_kernels(isa);
            EXPECT_NEAR(kernels.sum_between(x.data(), weights.data(), n, -1, 2),
                        scalar_logits.sum_between(x.data(), weights.data(), n, -1, 2), 1e-4);
            EXPECT_NEAR(kernels.sum_weighted(x.data(), weights.data(), n, 12),
                        scalar_logits.sum_weighted(x.data(), weights.data(), n, 12), 1e-3);
            const Moments a = kernels.moments(x.data(), n, 3),
                          b = scalar_logits.moments(x.data(), n, 3);
            EXPECT_EQ(a.count, b.count);
            EXPECT_NEAR(a.sum, b.sum, 1e-4 * std::abs(b.sum));
            EXPECT_NEAR(a.squares, b.squares, 1e-4 * b.squares);
            kernels.negate_distances(x.data(), n, 1.0f, found.data());
            scalar_logits.negate_distances(x.data(), n, 1.0f, expected.data());
            EXPECT_EQ(found, expected);
        }
}

TEST(BanUnset, LeavesTheLogitsOfSetBitsAndBansTheOthers) {
    for (Isa isa : available_isas())
        for (size_t n : sizes)
            for (unsigned seed = 0; seed < 4; ++seed) {
                std::mt19937 random(seed);
                std::vector<uint32_t> bits(n / 32 + 1);
                for (uint32_t& word : bits)  // whole words of either kind among them
                    word = random() % 3 == 0 ? 0 : random() % 2 == 0 ? ~0u : uint32_t(random());
                const auto x = mixed_logits(n);
                auto found = x;
                found.push_back(7);  // what follows stays
                logits_kernels(isa).ban_unset(found.data(), bits.data(), n);
                for (size_t i = 0; i < n; ++i) {
                    const bool is_set = (bits[i / 32] >> (i % 32) & 1) != 0;
                    ASSERT_EQ(found[i], is_set ? x[i] : -infinity) << i << " of " << n;
                }
                EXPECT_EQ(found[n], 7);
            }
}

}  // namespace
}  // namespace pagewheel::kernels
