// One test for each way in which block accounts of other engines went wrong.
#include <gtest/gtest.h>

#include <numeric>

#include "scheduling/scheduler.hpp"

namespace pagewheel {
namespace {

constexpr size_t block_size = 4;

class CacheDefects : public testing::Test {
protected:
    CacheDefects() : scheduler(config(), 20, block_size) {}
    ~CacheDefects() override {
        scheduler.store().check_integrity();
        EXPECT_EQ(scheduler.queues().num_running + scheduler.queues().num_waiting, 0u);
        EXPECT_EQ(scheduler.pool().num_held(), 0u);
        scheduler.clear_prefixes();
        EXPECT_EQ(scheduler.pool().num_free(), 20u);
    }
    static SchedulerConfig config() {
        SchedulerConfig config;
        config.max_num_batched_tokens = 8;
        config.enable_prefix_caching = true;
        return config;
    }
    static Sequence sequence(size_t length, int64_t first = 0) {
        Sequence sequence;
        sequence.tokens.resize(length);
        std::iota(sequence.tokens.begin(), sequence.tokens.end(), first);
        sequence.prompt_length = length;
        return sequence;
    }
    void step() {
        const Batch& batch = scheduler.schedule();
        scheduler.advance();
        for (const BatchEntry& entry : batch.entries)
            if (entry.samples()) entry.sequence->tokens.push_back(1000);
    }
    /// Free, idle, held.
    std::vector<size_t> blocks() const {
        return {scheduler.pool().num_free(), scheduler.pool().num_idle(),
                scheduler.pool().num_held()};
    }

    Scheduler scheduler;
};

TEST_F(CacheDefects, ASetWithoutABlockAlignedIndexIsFreed) {
    Sequence brief = sequence(3);
    scheduler.add(brief);
    step();
    EXPECT_EQ(blocks(), (std::vector<size_t>{19, 0, 1}));
    scheduler.drop_blocks(brief, {}, 0);
    scheduler.remove(brief);
    EXPECT_EQ(blocks(), (std::vector<size_t>{19, 1, 0}));
}

TEST_F(CacheDefects, ASpanThatAnotherRequestInsertedMeanwhileIsHeldOnce) {
    Sequence low = sequence(8), high = sequence(8);
    high.priority = 1;  // does not wait for the other: both compute the same
    scheduler.add(low);
    scheduler.schedule();
    scheduler.add(high);
    scheduler.advance();
    low.tokens.push_back(1000);
    step();
    EXPECT_EQ(low.blocks[0], high.blocks[0]);
    scheduler.remove(high);
    scheduler.remove(low);
    EXPECT_EQ(scheduler.store().tree().size(), 3u);  // 8 tokens, and the one behind them
}

TEST_F(CacheDefects, TwoThatComputedTheSameKeepOneCopy) {
    Sequence first = sequence(8), second = sequence(8);
    second.priority = 1;
    scheduler.add(first);
    scheduler.schedule();  // not computed yet: `second` cannot find it
    scheduler.add(second);
    scheduler.advance();
    scheduler.clear_prefixes();
    step();
    first.tokens.push_back(1000);
    step();
    scheduler.remove(first);
    scheduler.remove(second);
    scheduler.store().check_integrity();
    EXPECT_EQ(scheduler.store().tree().size(), scheduler.pool().num_idle());
}

TEST_F(CacheDefects, AnUnalignedTailAtFinishIsKeptAndFound) {
    Sequence first = sequence(6);
    scheduler.add(first);
    step();
    scheduler.remove(first);
    EXPECT_EQ(blocks(), (std::vector<size_t>{18, 2, 0}));
    Sequence second = sequence(7);
    scheduler.add(second);
    scheduler.schedule();
    EXPECT_EQ(second.num_prefix_hits, 6u);
    scheduler.discard(second);
    EXPECT_EQ(blocks(), (std::vector<size_t>{18, 2, 0}));
}

TEST_F(CacheDefects, TheLastDecodeSlotIsFreedOnce) {
    for (size_t length : {3u, 4u, 5u}) {  // the new token's slot ends a block, or begins one
        Sequence ended = sequence(length, int64_t(100 * length));
        scheduler.add(ended);
        step();
        step();
        const std::vector<size_t> before = blocks();
        scheduler.remove(ended);
        scheduler.remove(ended);  // and nothing comes of it
        EXPECT_EQ(blocks()[2], 0u);
        EXPECT_EQ(blocks()[0], before[0]);
    }
}

TEST_F(CacheDefects, AnAbortAfterAChunkWasInsertedReleasesItOnce) {
    Sequence aborted = sequence(30);
    scheduler.add(aborted);
    step();
    step();
    EXPECT_EQ(scheduler.store().tree().size(), 4u);  // two chunks of 8 tokens
    scheduler.schedule();
    scheduler.remove(aborted);  // before the third is computed
    EXPECT_EQ(blocks(), (std::vector<size_t>{16, 4, 0}));
}

TEST_F(CacheDefects, ABlockSharedAtTheBoundaryIsCopiedOnce) {
    Sequence parent = sequence(6);
    scheduler.add(parent);
    step();
    Sequence child = sequence(6);
    scheduler.fork(parent, child);
    child.tokens.push_back(7);
    const BlockId boundary = parent.blocks[1];
    const Batch& batch = scheduler.schedule();
    ASSERT_EQ(batch.copies.size(), 1u);
    EXPECT_EQ(batch.copies[0].from, boundary);
    EXPECT_TRUE((parent.blocks[1] == boundary) != (child.blocks[1] == boundary));
    scheduler.advance();
    scheduler.remove(parent);
    scheduler.remove(child);
    EXPECT_EQ(scheduler.store().tree().size(), 3u);  // one beginning, two ends
}

TEST_F(CacheDefects, ASequenceThatComputedNothingLeavesNothing) {
    Sequence waiting = sequence(5), single = sequence(1);
    scheduler.add(waiting);
    scheduler.remove(waiting);
    EXPECT_EQ(blocks(), (std::vector<size_t>{20, 0, 0}));
    scheduler.add(single);
    scheduler.schedule();
    scheduler.discard(single);
    EXPECT_EQ(blocks(), (std::vector<size_t>{20, 0, 0}));
    Sequence empty;
    EXPECT_THROW(scheduler.add(empty), std::logic_error);
}

TEST_F(CacheDefects, WhatTwoReleaseCanBeEvictedOnce) {
    Sequence first = sequence(8), second = sequence(8);
    scheduler.add(first);
    step();
    scheduler.add(second);
    step();
    scheduler.remove(first);
    scheduler.store().check_integrity();
    scheduler.remove(second);
    EXPECT_EQ(scheduler.store().tree().num_evictable(), scheduler.store().tree().size());
    EXPECT_EQ(scheduler.store().num_available(), 20u);
}

}  // namespace
}  // namespace pagewheel
