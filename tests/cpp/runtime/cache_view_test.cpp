// What the cache holds, as it is shown.
#include <algorithm>

#include "support/engine_fixture.hpp"

namespace pagewheel {
namespace {

constexpr size_t all = 100;

Tokens counting(int64_t first, size_t count) {
    Tokens tokens(count);
    for (size_t i = 0; i < count; ++i) tokens[i] = (first + int64_t(i)) % 90;
    return tokens;
}

size_t count_of(const CacheView& view, BlockState state) {
    return size_t(std::count(view.blocks.begin(), view.blocks.end(), state));
}

class CacheViewTest : public EngineTest {
protected:
    void SetUp() override {
        SchedulerConfig config = scheduler();
        config.enable_prefix_caching = true;
        config.max_num_batched_tokens = 64;
        config.max_num_seqs = 3;
        make(config);
    }
    Handle submit_as(uint64_t id, const Tokens& prompt, size_t count) {
        return engine->submit(id, prompt, greedy(count));
    }
    void expect_adds_up(const CacheView& view) {
        const PipelineStatistics statistics = engine->statistics();
        EXPECT_EQ(count_of(view, BlockState::FREE), statistics.num_free_blocks);
        EXPECT_EQ(count_of(view, BlockState::CACHED), statistics.num_cached_blocks);
        EXPECT_EQ(view.blocks.size(), statistics.num_blocks);
    }
};

TEST_F(CacheViewTest, BlocksOfAPrefixAreSharedByThoseWhoBeginWithIt) {
    const Tokens prefix = counting(1, 16);
    Tokens other = prefix;
    other.push_back(50);
    submit_as(7, prefix, 30);
    engine->step();
    submit_as(8, other, 30);
    engine->step();
    engine->step();
    const CacheView view = engine->view_cache(all, std::nullopt);
    ASSERT_EQ(view.sequences.size(), 2u);
    EXPECT_EQ(view.sequences[0].request_id, 7u);
    EXPECT_EQ(view.sequences[1].request_id, 8u);
    EXPECT_EQ(view.sequences[0].state, SequenceStatus::DECODING);
    EXPECT_EQ(view.sequences[1].num_prefix_hits, 16u);
    EXPECT_EQ(view.sequences[1].num_prompt_tokens, 17u);
    EXPECT_EQ(view.block_size, 4u);
    EXPECT_EQ(count_of(view, BlockState::SHARED), 4u);
    for (size_t i = 0; i < 4; ++i)
        EXPECT_EQ(view.sequences[0].blocks[i], view.sequences[1].blocks[i]);
    EXPECT_FALSE(view.kept);
    expect_adds_up(view);
    finish();
    const CacheView after = engine->view_cache(all, std::nullopt);
    EXPECT_EQ(after.num_sequences, 0u);
    EXPECT_EQ(count_of(after, BlockState::USED), 0u);
    EXPECT_GT(count_of(after, BlockState::CACHED), 4u);
    expect_adds_up(after);
}

TEST_F(CacheViewTest, WhatIsPinnedIsToldFromWhatIsKept) {
    const Tokens prompt = counting(1, 12);
    submit_as(1, prompt, 6);
    finish();
    engine->prefixes().pin({}, prompt);
    const CacheView view = engine->view_cache(all, std::nullopt);
    EXPECT_EQ(count_of(view, BlockState::PINNED), 3u);
    EXPECT_GT(count_of(view, BlockState::CACHED), 0u);
}

TEST_F(CacheViewTest, ThoseWithBlocksComeFirstAndTheOthersAreCounted) {
    for (uint64_t id = 0; id < 6; ++id) submit_as(id, counting(int64_t(id) * 10, 5), 20);
    engine->step();
    engine->step();
    const CacheView view = engine->view_cache(4, std::nullopt);
    EXPECT_EQ(view.num_sequences, 6u);
    ASSERT_EQ(view.sequences.size(), 4u);
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(view.sequences[i].state, SequenceStatus::DECODING);
    EXPECT_EQ(view.sequences[3].state, SequenceStatus::WAITING);
    EXPECT_TRUE(view.sequences[3].blocks.empty());
    EXPECT_EQ(view.num_steps, 2u);
}

TEST_F(CacheViewTest, WhatIsQueuedIsShown) {
    submit_as(3, counting(0, 5), 4);
    const CacheView view = engine->view_cache(all, std::nullopt);
    ASSERT_EQ(view.sequences.size(), 1u);
    EXPECT_EQ(view.sequences[0].state, SequenceStatus::WAITING);
}

}  // namespace
}  // namespace pagewheel
