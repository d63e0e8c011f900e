// Prefill chunks on tile registers, emulated, against the definition in double: every cache format
// on any processor.
#include <gtest/gtest.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/half.hpp"
#include "support/attention_world.hpp"
#include "support/prefill_on_emulated_tiles.hpp"

namespace pagewheel::kernels {

namespace {

/// This processor's kernels with prefill chunks on emulated tiles: by the vectors of AMX's kernels
/// where it has them, else by plain ones.
AttentionVariant emulated() {
    AttentionVariant variant(detected_isa());
    variant.name += ", amx emulated";
    variant.kernels.prefill_bf16 = prefill_on_emulated_tiles;
#if defined(__x86_64__)
    using Feature = CpuFeature;
    if (processor_features().has_all({Feature::avx512f, Feature::avx512bw, Feature::avx512dq,
                                      Feature::avx512vl, Feature::avx512_vnni, Feature::fma,
                                      Feature::f16c, Feature::avx512_bf16})) {
        variant.name += " by avx512";
        variant.kernels.prefill_bf16 = prefill_on_emulated_tiles_by_avx512;
    }
#endif
    return variant;
}

bool has_kernels_besides() {
    return emulated().kernels.has_tiles();
}

/// Root mean square of what the kernels make of the world, against the definition.
double error_of(World& w, const AttentionVariant& variant) {
    paged_attention(w.config, w.view(), variant.kernels);
    const Expected expected(w);
    double squares = 0;
    for (size_t i = 0; i < w.output.size(); ++i)
        squares += std::pow(w.output[i] - expected.output[i], 2);
    return std::sqrt(squares / double(w.output.size()));
}

/// 130 keys and three heads of 64, without what makes an error smaller.
World plain_world(CacheFormat format, std::mt19937& random) {
    AttentionConfig config = random_config(format, random);
    config.layout.kv_heads = 1;
    config.heads = 3;
    config.layout.key_size = config.layout.value_size = config.rotary_dims = 64;
    config.scale = 0.125f;
    config.sliding_window = 0;
    config.soft_cap = 0;
    config.bf16_products = true;
    return make_world(config, {{40, 90}}, random);
}

class AttentionOnTiles : public testing::TestWithParam<CacheFormat> {
protected:
    void SetUp() override {
        if (!has_kernels_besides()) GTEST_SKIP() << "no kernels to decode with";
    }

    /// All that a layer may have, but for what the arguments say.
    static AttentionConfig config_of(size_t kv_heads, size_t ratio, std::mt19937& random) {
        AttentionConfig config = random_config(GetParam(), random);
        config.layout.kv_heads = kv_heads;
        config.heads = kv_heads * ratio;
        config.bf16_products = true;
        return config;
    }
};

/// Tokens and rows around the sizes at which the work is divided otherwise: 16 and 32 rows, 16 and
/// 32 keys, one tile of 96 rows, several.
TEST_P(AttentionOnTiles, PromptChunksOfEveryLengthEqualTheDefinition) {
    std::mt19937 random(31);
    const size_t past[] = {0, 1, 15, 100, 333}, windows[] = {0, 0, 1, 3, 40, 128};
    for (const size_t fresh : {7, 24, 25, 31, 32, 33, 95, 97, 130}) {
        AttentionConfig config =
            config_of(pick(random, 1, 2), fresh < 90 ? pick(random, 1, 7) : 1, random);
        config.sliding_window = windows[pick(random, 0, 5)];
        World w = make_world(config, {{past[pick(random, 0, 4)], fresh}}, random);
        if (pick(random, 0, 1)) rotate_at_random(w, random);
        if (pick(random, 0, 1)) w.sinks = normal(config.heads, random, 2);
        if (pick(random, 0, 3) == 0) w.slopes = normal(config.heads, random, 0.1f);
        w.windows = {int32_t(pick(random, 0, 1) * fresh)};
        check(w, emulated());
        if (HasFailure()) return;
    }
}

TEST_P(AttentionOnTiles, PromptChunksOfEveryHeadSizeEqualTheDefinition) {
    std::mt19937 random(32);
    for (const size_t size : head_sizes) {
        AttentionConfig config = config_of(1, ratios[pick(random, 0, 4)], random);
        config.layout.key_size = config.rotary_dims = size;
        config.scale = 1 / std::sqrt(float(size));
        World w = make_world(config, {{pick(random, 0, 90), 30}, {20, 1}}, random);
        if (pick(random, 0, 1)) rotate_at_random(w, random);
        check(w, emulated());
        if (HasFailure()) return;
    }
}

TEST_P(AttentionOnTiles, PromptChunksOfUnusualBlocksAndHeadsEqualTheDefinition) {
    std::mt19937 random(33);
    const size_t shapes[][3] = {{128, 64, 64},
                                {256, 32, 128},
                                {16, 10, 6},
                                {48, 258, 34},
                                {48, 1024, 520}};  // block size, key size, value size
    for (const auto& [block, key, value] : shapes) {
        AttentionConfig config = config_of(1, 2, random);
        config.layout.block_size = block;
        config.layout.key_size = config.rotary_dims = key;
        config.layout.value_size = value;
        config.scale = 1 / std::sqrt(float(key));
        World w = make_world(config, {{150, 20}, {0, 14}}, random);
        check(w, emulated());
        rotate_at_random(w, random);
        check(w, emulated());
    }
}

/// Keys are unpacked up to 1,024 at a time, for up to 768 rows; a window's first keys may lie on
/// both sides of where one such span ends.
TEST_P(AttentionOnTiles, PromptsOfSeveralSpansAndTilesEqualTheDefinition) {
    std::mt19937 random(40);
    tbb::task_arena one(1);
    for (const size_t window : {0, 20, 1100}) {
        AttentionConfig config = config_of(1, 4, random);
        config.layout.block_size = window ? 48 : 16;
        config.layout.key_size = config.layout.value_size = config.rotary_dims = 32;
        config.scale = 1 / std::sqrt(32.0f);
        config.sliding_window = window;
        World w = make_world(config, {{850, 250}, {1000 + pick(random, 0, 50), 30}}, random);
        if (pick(random, 0, 1)) rotate_at_random(w, random);
        if (pick(random, 0, 1)) w.sinks = normal(config.heads, random, 2);
        if (pick(random, 0, 1)) w.slopes = normal(config.heads, random, 0.02f);
        one.execute([&] { check(w, emulated()); });
        if (HasFailure()) return;
    }
}

/// Logits in bits as the tiles have them: queries that bf16 holds, and are not rounded when they
/// are scaled.
World world_of_exact_logits(AttentionConfig config, const std::vector<Length>& lengths,
                            std::mt19937& random) {
    config.layout.key_size = config.layout.value_size = config.rotary_dims = 64;
    config.scale = 0.125f * 0.69314718056f;
    World w = make_world(config, lengths, random);
    for (float& x : w.query) x = float_of_bf16(bf16_of_float(x));
    return w;
}

// Weights are relative to the first keys. A later one may have a logit that is larger, by a little
// or by more than any exponent holds.
TEST_P(AttentionOnTiles, LogitsFarAboveThoseOfTheFirstKeysEqualTheDefinition) {
    std::mt19937 random(41);
    for (int i = 0; i < 40; ++i) {
        AttentionConfig config = config_of(1, pick(random, 1, 4), random);
        config.soft_cap = pick(random, 0, 3) ? 0 : 3000;
        World w = world_of_exact_logits(config, {{300, pick(random, 30, 70)}, {0, 40}}, random);
        const size_t size = 64, s = pick(random, 0, 1);
        for (size_t r = 0; r < w.query.size() / size; ++r) w.query[r * size] = 2;
        for (size_t n = pick(random, 1, 3); n > 0; --n) {
            const size_t token = size_t(w.begins[s]) + pick(random, 0, w.fresh(s) - 1);
            const float bits = std::exp2(float(pick(random, 12, 52)) / 4);  // to 8,192
            w.key[token * size] = (pick(random, 0, 3) ? 4 : -4) * bits;
        }
        check(w, emulated());
        if (HasFailure()) return;
    }
}

// What is no number never becomes one, and reaches no row that does not see it.
TEST_P(AttentionOnTiles, WhatIsNotFiniteReachesTheRowsThatSeeItAlone) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    std::mt19937 random(42);
    for (int i = 0; i < 30; ++i) {
        AttentionConfig config = config_of(1, pick(random, 1, 4), random);
        config.sliding_window = i % 3 ? 0 : 50;
        config.soft_cap = 0;
        World w = world_of_exact_logits(config, {{0, 130}}, random);
        const float bad[] = {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity};
        const size_t size = 64, token = pick(random, 0, 129);
        const bool is_query = pick(random, 0, 1);
        const size_t row = is_query ? token * config.heads : token;
        (is_query ? w.query : w.key)[row * size + pick(random, 0, 63)] = bad[i % 3];
        const AttentionVariant variant = emulated();
        paged_attention(w.config, w.view(), variant.kernels);
        const Expected expected(w);
        for (size_t j = 0; j < w.output.size(); ++j) {
            const size_t t = j / size / config.heads, window = config.sliding_window;
            const bool sees =
                is_query ? j / size == row : t >= token && (!window || t - token < window);
            if (!sees || std::isfinite(w.output[j])) {
                ASSERT_NEAR(w.output[j], expected.output[j], 2e-2)
                    << describe(w, variant) << " output " << j;
            }
        }
    }
}

// Rows, keys and values of one sequence stay out of all others', though the blocks of both lie in
// one pool and tiles are filled up with what follows.
TEST_P(AttentionOnTiles, WhatIsNotFiniteStaysWithinItsSequence) {
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    constexpr float infinity = std::numeric_limits<float>::infinity();
    std::mt19937 random(37);
    AttentionConfig config = config_of(2, 3, random);
    config.layout.key_size = config.layout.value_size = config.rotary_dims = 48;
    World w = make_world(config, {{10, 33}, {0, 37}, {5, 11}}, random);
    rotate_at_random(w, random);
    const size_t width = config.heads * config.layout.value_size;
    const auto spoil = [&](std::vector<float>& x, float bad) {
        const size_t row = x.size() / size_t(w.begins.back());
        for (size_t t = size_t(w.begins[1]); t < size_t(w.begins[2]); t += 5)
            for (size_t i = t % 3; i < row; i += 3) x[t * row + i] = bad;
    };
    const AttentionVariant variant = emulated();
    for (const float bad : {nan, infinity}) {
        World spoiled = w;
        for (auto* x : {&spoiled.query, &spoiled.key, &spoiled.value}) spoil(*x, bad);
        paged_attention(w.config, w.view(), variant.kernels);
        paged_attention(spoiled.config, spoiled.view(), variant.kernels);
        for (size_t i = 0; i < w.output.size(); ++i) {
            const auto token = int32_t(i / width);
            if (token >= w.begins[1] && token < w.begins[2]) continue;
            ASSERT_EQ(w.output[i], spoiled.output[i]) << describe(w, variant) << token;
        }
    }
}

// A bf16 cache is multiplied as it is, so that its error is the rounding of queries and
// probabilities. Those of codes, of sums of two numbers and of rotated keys are no larger. With the
// values' scales the largest probability, 1, is rounded too: a tenth more.
TEST(AttentionOnTilesInEveryFormat, AddsAboutTheRoundingOfQueriesAndProbabilities) {
    if (!has_kernels_besides()) GTEST_SKIP() << "no kernels to decode with";
    const AttentionVariant variant = emulated();
    const auto error_in = [&](CacheFormat format, bool rotated) {
        double squares = 0;
        for (const unsigned seed : {34, 35, 36, 37}) {
            std::mt19937 random(seed);
            World w = plain_world(format, random);
            if (rotated) rotate_at_random(w, random);
            squares += std::pow(error_of(w, variant), 2) / 4;
        }
        return std::sqrt(squares);
    };
    const double rounding = error_in(CacheFormat::bf16, false);
    EXPECT_LE(rounding, 1e-3);
    for (const CacheFormat format :
         {CacheFormat::bf16, CacheFormat::f16, CacheFormat::u8, CacheFormat::u4})
        for (const bool rotated : {false, true})
            EXPECT_LE(error_in(format, rotated), (format == CacheFormat::u8 ? 1.2 : 1.1) * rounding)
                << variant.name << cache_format_name(format) << (rotated ? " rotated" : "");
}

// Queries of zeros make probabilities of 1, which bf16 holds: what is left is the values' error.
TEST(AttentionOnTilesInEveryFormat, RoundsNoValue) {
    if (!has_kernels_besides()) GTEST_SKIP() << "no kernels to decode with";
    for (const CacheFormat format : {CacheFormat::bf16, CacheFormat::f16, CacheFormat::u4}) {
        std::mt19937 random(38);
        World w = plain_world(format, random);
        std::fill(w.query.begin(), w.query.end(), 0.0f);
        EXPECT_LE(error_of(w, emulated()), 1e-6) << describe(w, emulated());
    }
}

// Each query is a multiple of its token's key. The value's scale is rounded with the probability of
// 1, and the sum makes up for it.
TEST(AttentionOnTilesInEveryFormat, AKeyWithAllOfTheMassGivesItsValue) {
    if (!has_kernels_besides()) GTEST_SKIP() << "no kernels to decode with";
    for (const CacheFormat format :
         {CacheFormat::bf16, CacheFormat::f16, CacheFormat::u8, CacheFormat::u4}) {
        std::mt19937 random(39);
        World w = plain_world(format, random);
        const size_t size = w.config.layout.key_size, heads = w.config.heads;
        for (size_t i = 0; i < w.query.size(); ++i)
            w.query[i] = 20 * w.key[i / (heads * size) * size + i % size];
        EXPECT_LE(error_of(w, emulated()), 1e-5) << describe(w, emulated());
    }
}

INSTANTIATE_TEST_SUITE_P(Formats, AttentionOnTiles, testing::ValuesIn(all_cache_formats),
                         [](const auto& info) { return cache_format_name(info.param); });

}  // namespace
}  // namespace pagewheel::kernels
