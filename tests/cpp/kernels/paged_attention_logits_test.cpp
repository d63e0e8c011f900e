// Attention with queries for some of the new tokens alone, over keys and values of all.
#include <gtest/gtest.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <random>
#include <vector>

#include "support/attention_world.hpp"
#include "support/kernel_access.hpp"

namespace pagewheel::kernels {
namespace {

class AttentionOfLogitsIndices : public testing::TestWithParam<CacheFormat> {};

/// None, all or some of each sequence's new tokens.
std::vector<size_t> ask_at_random(const World& w, std::mt19937& random) {
    std::vector<size_t> asked;
    for (size_t s = 0; s < w.batch_size(); ++s) {
        const size_t some[] = {0, 1, w.fresh(s), pick(random, 0, w.fresh(s))};
        asked.push_back(some[pick(random, 0, 3)]);
    }
    return asked;
}

TEST_P(AttentionOfLogitsIndices, EqualsTheDefinitionForRandomShapesAndBatches) {
    std::mt19937 random(21);
    for (int i = 0; i < 60; ++i) {
        World w = random_world(GetParam(), random, 2);
        ask(w, ask_at_random(w, random));
        if (i % 3 == 0) {
            write_keys_values(w.config.layout, w.view(), Isa::scalar);
            w.config.write_kv_cache = false;
            w.key.clear();
            w.value.clear();
        }
        check(w, isa_variants(i % 5 == 0));
        if (testing::Test::HasFailure()) return;
    }
}

TEST_P(AttentionOfLogitsIndices, WritesWhatAttentionOfAllRowsWrites) {
    std::mt19937 random(22);
    for (int i = 0; i < 10; ++i) {
        const World start = random_world(GetParam(), random, 1);
        for (const std::vector<size_t>& asked :
             {ask_at_random(start, random), std::vector<size_t>(start.batch_size(), 0)})
            for (Isa isa : available_isas()) {
                World all = start, some = start;
                ask(some, asked);
                paged_attention(all.config, all.view(), isa);
                paged_attention(some.config, some.view(), isa);
                EXPECT_EQ(some.key_blocks, all.key_blocks) << describe(some, isa);
                EXPECT_EQ(some.value_blocks, all.value_blocks) << describe(some, isa);
            }
        if (testing::Test::HasFailure()) return;
    }
}

TEST_P(AttentionOfLogitsIndices, WithoutAnyQueryScoresAreZeros) {
    std::mt19937 random(23);
    World w = make_world(random_config(GetParam(), random), {{40, 1}, {3, 20}}, random);
    w.windows = {1, 4};
    ask(w, {0, 0});
    for (Isa isa : available_isas()) {
        std::fill(w.scores.begin(), w.scores.end(), 1.0f);
        paged_attention(w.config, w.view(), isa);
        EXPECT_EQ(w.scores, std::vector<float>(w.scores.size(), 0)) << describe(w, isa);
    }
}

/// Where one thread gives both calls' rows to the same kernel, tiles or not, nothing tells a row
/// that it has fewer neighbours.
TEST_P(AttentionOfLogitsIndices, EqualsTheRowsOfAllToTheBitFromTheSameKernel) {
    std::mt19937 random(24);
    tbb::task_arena one(1);
    for (int i = 0; i < 6; ++i) {
        AttentionConfig config = random_config(GetParam(), random);
        config.sliding_window = 0;  // it lets tiles begin at other keys
        const bool many = i % 2;    // rows for the prompts' kernel
        const size_t ratio = config.heads / config.layout.kv_heads, most = (23 + ratio) / ratio;
        const size_t fresh = many ? 100 : most - 1;
        if (fresh == 0) continue;
        World all = make_world(config, {{60, fresh}, {0, fresh}, {33, 1}}, random);
        if (pick(random, 0, 1)) rotate_at_random(all, random);
        World some = all;
        ask(some, {many ? most + 20 : (fresh + 1) / 2, 0, 1});
        for (Isa isa : available_isas()) {
            // The unit of its queries is that of a tile's largest one.
            if (many && GetParam() == CacheFormat::u8 && multiplies_integers(isa)) continue;
            one.execute([&] {
                paged_attention(all.config, all.view(), isa);
                paged_attention(some.config, some.view(), isa);
            });
            EXPECT_EQ(some.output, logits_indices(all, some.asked)) << describe(some, isa);
        }
        if (testing::Test::HasFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(Formats, AttentionOfLogitsIndices, testing::ValuesIn(all_cache_formats),
                         [](const auto& info) { return cache_format_name(info.param); });

}  // namespace
}  // namespace pagewheel::kernels
