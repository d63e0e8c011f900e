// Statistics, and the metrics that are made of them.
#include "pagewheel/statistics.hpp"

#include <gtest/gtest.h>

namespace pagewheel {
namespace {

TEST(PipelineMetrics, AreTheStatisticsUnderOtherNames) {
    PipelineStatistics statistics;
    statistics.num_blocks = 200;
    statistics.num_used_blocks = 50;
    statistics.max_used_blocks = 150;
    statistics.mean_used_blocks = 20.5;
    statistics.num_prefix_blocks = 4;
    statistics.block_bytes = 1000;
    statistics.num_requests = 7;
    statistics.latest_step.num_sequences = 3;
    statistics.num_preemptions = 2;
    statistics.num_prompt_tokens = 90;
    statistics.num_prefix_cache_hit_tokens = 64;
    const PipelineMetrics metrics = metrics_of(statistics);
    EXPECT_EQ(metrics.requests, 7u);
    EXPECT_EQ(metrics.scheduled_requests, 3u);
    EXPECT_FLOAT_EQ(metrics.cache_usage, 25.0f);
    EXPECT_FLOAT_EQ(metrics.max_cache_usage, 75.0f);
    EXPECT_FLOAT_EQ(metrics.avg_cache_usage, 10.25f);
    EXPECT_FLOAT_EQ(metrics.prefix_cache_usage, 2.0f);
    EXPECT_EQ(metrics.kv_cache_size_in_bytes, 200'000u);
    EXPECT_EQ(metrics.cache_size_in_bytes, 200'000u);
    EXPECT_EQ(metrics.preemptions, 2u);
    EXPECT_EQ(metrics.prompt_tokens, 90u);
    EXPECT_EQ(metrics.prefix_cache_hit_tokens, 64u);
}

TEST(PipelineMetrics, OfNoBlocksAreZero) {
    EXPECT_EQ(metrics_of({}).cache_usage, 0.0f);
    EXPECT_EQ(metrics_of({}).avg_cache_usage, 0.0f);
}

}  // namespace
}  // namespace pagewheel
