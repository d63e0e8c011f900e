// Decodes that several threads share: what one thread computed, another one merges.
#include <gtest/gtest.h>
#include <tbb/global_control.h>
#include <tbb/task_arena.h>

#include <random>
#include <vector>

#include "support/attention_world.hpp"

namespace pagewheel::kernels {
namespace {

class PagedAttentionThreads : public testing::TestWithParam<CacheFormat> {};

// Threads add up the scores of the parts that they computed, or of each tile where all of its parts
// are one thread's.
TEST_P(PagedAttentionThreads, OutputAndScoresOfDecodesThatAreCutAreWhole) {
    const tbb::global_control workers(tbb::global_control::max_allowed_parallelism, 3);
    std::mt19937 random(17);
    AttentionConfig config = random_config(GetParam(), random);
    config.layout.kv_heads = 1;
    config.sliding_window = 0;
    for (const int threads : {1, 2, 3})
        tbb::task_arena(threads).execute([&] {
            config.batch_invariant = false;
            for (const size_t heads : {2, 12}) {
                config.heads = heads;
                World w = make_world(config, {{2000, 1}, {700, 1}}, random);
                w.windows = {1, 1};
                check(w, isa_variants());
            }
            config.batch_invariant = true;
            config.heads = 2;
            World w = make_world(config, std::vector<Length>(13, {600, 1}), random);
            w.windows.assign(13, 1);
            check(w, isa_variants());
        });
}

INSTANTIATE_TEST_SUITE_P(Formats, PagedAttentionThreads,
                         testing::Values(CacheFormat::f32, CacheFormat::u8),
                         [](const auto& info) { return cache_format_name(info.param); });

}  // namespace
}  // namespace pagewheel::kernels
