// Prefill chunks of every ISA and cache format against a double reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/kernels.hpp"
#include "support/attention_world.hpp"
#include "support/kernel_access.hpp"

namespace pagewheel::kernels {
namespace {

class AttentionPrefill : public testing::TestWithParam<CacheFormat> {};

/// Tokens and rows around the sizes at which the work is divided otherwise: fewer rows than a
/// prompt kernel takes, one tile, several; six rows at a time, 128 keys at a time.
TEST_P(AttentionPrefill, PromptChunksOfEveryLengthEqualTheDefinition) {
    std::mt19937 random(16);
    const size_t past[] = {0, 1, 15, 100, 333}, windows[] = {0, 0, 1, 3, 40, 128};
    for (size_t fresh : {2, 7, 8, 9, 13, 23, 24, 25, 31, 32, 33, 95, 96, 97, 193}) {
        AttentionConfig config = random_config(GetParam(), random);
        config.layout.kv_heads = pick(random, 1, 2);
        config.heads = config.layout.kv_heads * (fresh < 90 ? pick(random, 1, 7) : 1);
        config.sliding_window = windows[pick(random, 0, 5)];
        World w = make_world(config, {{past[pick(random, 0, 4)], fresh}}, random);
        if (pick(random, 0, 1)) rotate_at_random(w, random);
        if (pick(random, 0, 1)) w.sinks = normal(config.heads, random, 2);
        if (pick(random, 0, 3) == 0) w.slopes = normal(config.heads, random, 0.1f);
        w.windows = {static_cast<int32_t>(pick(random, 0, 1) * fresh)};
        check(w, isa_variants(false));
        if (testing::Test::HasFailure()) return;
    }
}

TEST_P(AttentionPrefill, PromptChunksOfUnusualBlocksAndHeadsEqualTheDefinition) {
    std::mt19937 random(17);
    const size_t shapes[][3] = {{128, 64, 64},
                                {256, 32, 128},
                                {16, 10, 6},
                                {32, 258, 34},
                                {48, 1024, 520}};  // block size, key size, value size
    for (const auto& [block, key, value] : shapes) {
        AttentionConfig config = random_config(GetParam(), random);
        config.layout.block_size = block;
        config.layout.key_size = key;
        config.layout.value_size = value;
        config.layout.kv_heads = 1;
        config.heads = 2;
        config.rotary_dims = key;
        config.scale = 1 / std::sqrt(static_cast<float>(key));
        World w = make_world(config, {{150, 40}, {300, 1}, {0, 14}}, random);
        check(w, isa_variants());
        rotate_at_random(w, random);
        check(w, isa_variants());
    }
}

// One token holds nearly all of a row's mass and has a tiny value: what is left of the mass is
// small against the largest probability, but makes the output.
TEST_P(AttentionPrefill, PromptChunksKeepTheTailBesideAnAttentionSink) {
    std::mt19937 random(18);
    AttentionConfig config = random_config(GetParam(), random);
    config.layout.key_size = config.layout.value_size = 64;
    config.layout.kv_heads = 1;
    config.heads = 3;
    config.scale = 0.125f;
    config.sliding_window = config.rotary_dims = 0;
    World w = make_world(config, {{0, 200}}, random);
    for (size_t d = 0; d < 64; ++d) {
        w.key[d] = 1.2f;
        w.value[d] *= 0.01f;
    }
    for (float& q : w.query) q += 0.6f;  // 5.8 above the others' logits
    check(w, isa_variants());
}

// Against f32 arithmetic over the same cache: roundings of 2^-9 at random, nothing beyond.
TEST(AttentionPrefillInBf16, AddsAboutTheRoundingOfQueriesAndProbabilities) {
    const Isa isa = detected_isa();
    AttentionConfig layer;
    layer.layout.format = CacheFormat::bf16;
    if (!isa.kernels().attention.rounds_to_bf16(layer)) GTEST_SKIP() << "no products in bf16";
    std::mt19937 random(19);
    for (int i = 0; i < 8; ++i) {
        AttentionConfig config = random_config(CacheFormat::bf16, random);
        World w = random_world(config, random, 4);
        write_keys_values(config.layout, w.view(), Isa::scalar);
        const Expected expected(w);
        double squares[2] = {};
        for (const bool bf16 : {false, true}) {
            w.config.bf16_products = bf16;
            paged_attention(w.config, w.view(), isa);
            for (size_t j = 0; j < w.output.size(); ++j)
                squares[bf16] += std::pow(w.output[j] - expected.output[j], 2);
            squares[bf16] = std::sqrt(squares[bf16] / static_cast<double>(w.output.size()));
        }
        EXPECT_LE(squares[0], 3e-6) << describe(w, isa);
        EXPECT_LE(squares[1], 3e-3) << describe(w, isa);
    }
}

INSTANTIATE_TEST_SUITE_P(Formats, AttentionPrefill, testing::ValuesIn(all_cache_formats),
                         [](const auto& info) { return cache_format_name(info.param); });

}  // namespace
}  // namespace pagewheel::kernels
