// Paged attention of every ISA and cache format against a double reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "support/attention_world.hpp"
#include "support/kernel_access.hpp"

namespace pagewheel::kernels {
namespace {

class PagedAttention : public testing::TestWithParam<CacheFormat> {};

TEST_P(PagedAttention, EqualsTheDefinitionForRandomShapesAndBatches) {
    std::mt19937 random(7);
    for (int i = 0; i < 20; ++i) {
        World w = random_world(GetParam(), random, 8);
        check(w, isa_variants(i % 3 == 0));
        if (testing::Test::HasFailure()) return;
    }
}

// Every kv heads x head size x block size, every kv heads x ratio, every key size x value size,
// with batches, windows, sinks, slopes, rotation and scores at random.
TEST_P(PagedAttention, EqualsTheDefinitionForEveryShape) {
    std::mt19937 random(16);
    for (size_t i = 0; i < kv_head_counts.size() * head_sizes.size() * block_sizes.size(); ++i) {
        AttentionConfig config = random_config(GetParam(), random);
        config.layout.kv_heads = kv_head_counts[i % kv_head_counts.size()];
        config.layout.key_size = head_sizes[i % head_sizes.size()];
        config.layout.value_size = head_sizes[(i + i / head_sizes.size()) % head_sizes.size()];
        config.layout.block_size = block_sizes[i % block_sizes.size()];
        config.heads = config.layout.kv_heads * ratios[i / kv_head_counts.size() % ratios.size()];
        config.scale = 1 / std::sqrt(static_cast<float>(config.layout.key_size));
        config.rotary_dims = i % 2 ? config.layout.key_size : config.layout.key_size / 4 * 2;
        World w = random_world(config, random, 1);
        check(w, isa_variants(i % 7 == 0));
        if (testing::Test::HasFailure()) return;
    }
}

TEST_P(PagedAttention, ALayerWithoutItsOwnCacheLeavesItAsItIs) {
    std::mt19937 random(13);
    World w = make_world(random_config(GetParam(), random), {{90, 1}, {0, 33}}, random);
    write_keys_values(w.config.layout, w.view(), Isa::scalar);
    w.config.write_kv_cache = false;
    w.key.clear();
    w.value.clear();
    const auto keys = w.key_blocks, values = w.value_blocks;
    check(w, isa_variants());
    EXPECT_EQ(w.key_blocks, keys);
    EXPECT_EQ(w.value_blocks, values);
}

TEST_P(PagedAttention, LongDecodeIsCutAlongTheKeys) {
    std::mt19937 random(15);
    AttentionConfig config = random_config(GetParam(), random);
    config.layout.kv_heads = 1;
    config.heads = 3;
    config.sliding_window = 0;
    World w = make_world(config, {{4000, 1}, {1500, 3}}, random);
    w.sinks = normal(3, random);
    w.windows = {1, 2};
    check(w, isa_variants());
    w.config.sliding_window = 900;
    check(w, isa_variants());
}

INSTANTIATE_TEST_SUITE_P(Formats, PagedAttention, testing::ValuesIn(all_cache_formats),
                         [](const auto& info) { return cache_format_name(info.param); });

}  // namespace
}  // namespace pagewheel::kernels
