// With batch_invariant a query's attention has the same bits whatever else the call holds.
#include <gtest/gtest.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <random>
#include <vector>

#include "kernels/kernels.hpp"
#include "support/attention_world.hpp"
#include "support/kernel_access.hpp"

namespace pagewheel::kernels {
namespace {

class AttentionInvariance : public testing::TestWithParam<CacheFormat> {};

/// The new token t of sequence s alone, over the cache that w has filled.
std::vector<float> alone(const World& w, size_t s, size_t t, Isa isa) {
    World one = w;
    const auto row = size_t(w.begins[s]) + t;
    const size_t query = w.config.heads * w.config.layout.key_size;
    one.config.write_kv_cache = false;
    one.past = {w.past[s] + int32_t(t)};
    one.begins = {0, 1};
    one.query.assign(w.query.begin() + long(row * query),
                     w.query.begin() + long((row + 1) * query));
    one.output.assign(w.config.heads * w.config.layout.value_size, 0);
    one.block_indices.assign(w.block_indices.begin() + w.block_begins[s],
                             w.block_indices.begin() + w.block_begins[s + 1]);
    const size_t blocks =
        (one.context(0) + w.config.layout.block_size - 1) / w.config.layout.block_size;
    one.block_indices.resize(blocks);
    one.block_begins = {0, int32_t(blocks)};
    paged_attention(one.config, one.view(), isa);
    return one.output;
}

TEST_P(AttentionInvariance, ATokenAloneEqualsItsRowOfAChunkAmongOthers) {
    std::mt19937 random(31);
    for (const size_t window : {0, 700}) {
        AttentionConfig config = random_config(GetParam(), random);
        config.layout.kv_heads = 2;
        config.heads = 6;
        config.sliding_window = window;
        config.batch_invariant = true;
        World w = make_world(config, {{1200, 1}, {0, 70}, {1000, 90}, {3, 1}}, random);
        for (const Isa isa : available_isas()) {
            if (isa == Isa::scalar) continue;
            paged_attention(w.config, w.view(), isa);
            const std::vector<float> all = w.output;
            for (const int threads : {1, 5}) {
                std::fill(w.output.begin(), w.output.end(), 0.0f);
                tbb::task_arena(threads).execute([&] { paged_attention(w.config, w.view(), isa); });
                ASSERT_EQ(w.output, all) << threads << " threads, " << describe(w, isa);
            }
            for (size_t s = 0; s < w.batch_size(); ++s)
                for (size_t t = 0; t < w.fresh(s); t += 13) {
                    const std::vector<float> one = alone(w, s, t, isa);
                    const auto row = all.begin() + long((size_t(w.begins[s]) + t) * one.size());
                    ASSERT_TRUE(std::equal(one.begin(), one.end(), row))
                        << "token " << t << " of " << s << ", " << describe(w, isa);
                }
        }
        check(w, isa_variants(false));
    }
}

TEST_P(AttentionInvariance, AShortSpanAloneHasTheBitsOfDecodes) {
    std::mt19937 random(32);
    for (const size_t window : {0, 700}) {
        AttentionConfig config = random_config(GetParam(), random);
        config.layout.kv_heads = 2;
        config.heads = 6;
        config.sliding_window = window;
        for (const auto& span : {std::pair<size_t, size_t>{1500, 8}, {2047, 16}, {30, 3}}) {
            World w = make_world(config, {{span.first, span.second}}, random);
            for (const Isa isa : available_isas()) {
                if (isa == Isa::scalar) continue;
                for (const int threads : {1, 2, 5})
                    tbb::task_arena(threads).execute([&] {
                        paged_attention(w.config, w.view(), isa);
                        for (size_t t = 0; t < span.second; ++t) {
                            const std::vector<float> one = alone(w, 0, t, isa);
                            const auto row = w.output.begin() + long(t * one.size());
                            ASSERT_TRUE(std::equal(one.begin(), one.end(), row))
                                << "token " << t << ", " << threads << " threads, "
                                << describe(w, isa);
                        }
                    });
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Formats, AttentionInvariance, testing::ValuesIn(all_cache_formats),
                         [](const auto& info) { return cache_format_name(info.param); });

}  // namespace
}  // namespace pagewheel::kernels
