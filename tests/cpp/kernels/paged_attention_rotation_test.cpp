// Keys read at other positions than they were written at.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "support/attention_world.hpp"
#include "support/kernel_access.hpp"

namespace pagewheel::kernels {
namespace {

class AttentionRotation : public testing::TestWithParam<CacheFormat> {};

/// Keys of one head position by position, rotated to `position`.
std::vector<float> rotated(const World& w, const std::vector<float>& keys,
                           const std::vector<size_t>& positions) {
    const size_t d = w.config.layout.key_size, heads = w.config.layout.kv_heads;
    const size_t half = w.config.rotary_dims / 2;
    std::vector<float> out = keys;
    for (size_t row = 0; row < keys.size() / d; ++row)
        for (size_t i = 0; i < half; ++i) {
            const double angle = static_cast<double>(positions[row / heads]) *
                                 std::pow(1e4, -static_cast<double>(i) / static_cast<double>(half));
            const size_t a = row * d + (w.config.interleaved ? 2 * i : i);
            const size_t b = row * d + (w.config.interleaved ? 2 * i + 1 : i + half);
            out[a] = static_cast<float>(keys[a] * std::cos(angle) - keys[b] * std::sin(angle));
            out[b] = static_cast<float>(keys[a] * std::sin(angle) + keys[b] * std::cos(angle));
        }
    return out;
}

// Eviction: keys written at p and read with delta e, against keys written at p - e; both against an
// f32 cache written at p - e, in double.
TEST_P(AttentionRotation, RotatedCacheIsAsGoodAsOneWrittenAtTheLowerPositions) {
    std::mt19937 random(10);
    for (int i = 0; i < 8; ++i) {
        AttentionConfig config = random_config(GetParam(), random);
        config.sliding_window = 0;
        const size_t tokens = 90, block = config.layout.block_size;
        World w = make_world(config, {{0, tokens}}, random);
        make_lut(w, 2000);
        const std::vector<float> keys = w.key;
        w.delta_width = i % 2 ? 1 : block;
        std::vector<size_t> low(tokens), high(tokens);
        for (size_t b = 0; b < w.block_indices.size(); ++b) {
            w.rotated.push_back(static_cast<int32_t>(b));
            for (size_t t = 0; t < w.delta_width; ++t)
                w.deltas.push_back(static_cast<int32_t>(pick(random, 0, 1999)));
        }
        for (size_t t = 0; t < tokens; ++t) {
            const size_t at = t / block * w.delta_width + (i % 2 ? 0 : t % block);
            low[t] = t;
            high[t] = t + static_cast<size_t>(w.deltas[at]);
        }
        World exact = w;
        exact.config.layout.format = CacheFormat::f32;
        exact.rotated.clear();
        exact.key_blocks.resize((w.block_indices.size() + 1) *
                                exact.config.layout.key_block_bytes());
        exact.value_blocks.resize((w.block_indices.size() + 1) *
                                  exact.config.layout.value_block_bytes());
        const std::vector<float> low_keys = rotated(w, keys, low);
        const std::vector<float> high_keys = rotated(w, keys, high);
        exact.key = low_keys;
        write_keys_values(exact.config.layout, exact.view(), Isa::scalar);
        const Expected expected(exact);

        for (Isa isa : available_isas()) {
            World scratch = w;
            scratch.rotated.clear();
            scratch.key = low_keys;
            paged_attention(scratch.config, scratch.view(), isa);
            w.key = high_keys;
            paged_attention(w.config, w.view(), isa);
            const auto mean_square = [&](const std::vector<float>& out) {
                double sum = 0;
                for (size_t j = 0; j < out.size(); ++j)
                    sum += std::pow(out[j] - expected.output[j], 2);
                return std::sqrt(sum / static_cast<double>(out.size()));
            };
            const double without = mean_square(scratch.output), with = mean_square(w.output);
            if (config.layout.format == CacheFormat::f32) {
                EXPECT_LE(largest_difference(w.output, expected.output), 1e-5) << describe(w, isa);
            }
            EXPECT_LE(with, 1.1 * without + 1e-6) << describe(w, isa);
            if (testing::Test::HasFailure()) return;
        }
    }
}

TEST_P(AttentionRotation, OneDeltaPerBlockEqualsEqualDeltasPerToken) {
    std::mt19937 random(11);
    for (int i = 0; i < 6; ++i) {
        World w = make_world(random_config(GetParam(), random), {{300, 1}, {20, 40}}, random);
        make_lut(w, 50);
        World tokens = w;
        tokens.delta_width = w.config.layout.block_size;
        for (size_t b = 0; b < w.block_indices.size(); b += 2) {
            w.rotated.push_back(static_cast<int32_t>(b));
            w.deltas.push_back(static_cast<int32_t>(pick(random, 0, 49)));
            tokens.deltas.insert(tokens.deltas.end(), tokens.delta_width, w.deltas.back());
        }
        tokens.rotated = w.rotated;
        for (Isa isa : available_isas()) {
            paged_attention(w.config, w.view(), isa);
            paged_attention(tokens.config, tokens.view(), isa);
            EXPECT_EQ(w.output, tokens.output) << describe(w, isa);
        }
    }
}

TEST_P(AttentionRotation, SequencesReadASharedBlockAtTheirOwnDeltas) {
    std::mt19937 random(12);
    World w = make_world(random_config(GetParam(), random), {{70, 1}, {70, 1}, {70, 1}}, random);
    make_lut(w, 50);
    for (size_t s = 1; s < 3; ++s)
        w.block_indices[static_cast<size_t>(w.block_begins[s])] = w.block_indices[0];
    w.rotated = {0, w.block_begins[1]};
    w.deltas = {17, 40};
    check(w, isa_variants());
}

INSTANTIATE_TEST_SUITE_P(Formats, AttentionRotation, testing::ValuesIn(all_cache_formats),
                         [](const auto& info) { return cache_format_name(info.param); });

}  // namespace
}  // namespace pagewheel::kernels
