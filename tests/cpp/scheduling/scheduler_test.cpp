#include "scheduling/scheduler.hpp"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>

namespace pagewheel {
namespace {

constexpr size_t block_size = 4;

Sequence make_sequence(size_t length, int64_t first_token = 0) {
    Sequence sequence;
    for (size_t i = 0; i < length; ++i) sequence.tokens.push_back(first_token + int64_t(i));
    sequence.prompt_length = length;
    return sequence;
}

SchedulerConfig config(size_t max_num_batched_tokens, size_t max_num_seqs = 256) {
    SchedulerConfig config;
    config.max_num_batched_tokens = max_num_batched_tokens;
    config.max_num_seqs = max_num_seqs;
    return config;
}

/// What the model would do: the step is computed, and sequences whose logits were wanted get a
/// token.
void compute(Scheduler& scheduler, const Batch& batch) {
    scheduler.advance();
    for (const BatchEntry& entry : batch.entries)
        if (entry.samples()) entry.sequence->tokens.push_back(1000);
}

TEST(Scheduler, SplitsAPromptByTheTokenBudget) {
    Scheduler scheduler(config(8), 100, block_size);
    Sequence sequence = make_sequence(19);
    scheduler.add(sequence);
    for (const auto& [tokens, samples] : {std::pair(8, false), {8, false}, {3, true}, {1, true}}) {
        const Batch& batch = scheduler.schedule();
        ASSERT_EQ(batch.entries.size(), 1u);
        EXPECT_EQ(batch.entries[0].num_tokens, size_t(tokens));
        EXPECT_EQ(batch.entries[0].samples(), samples);
        compute(scheduler, batch);
    }
}

TEST(Scheduler, TakesDecodesBeforeChunksOfPrompts) {
    Scheduler scheduler(config(8), 100, block_size);
    Sequence decoding = make_sequence(2), prompt = make_sequence(20);
    scheduler.add(decoding);
    compute(scheduler, scheduler.schedule());
    scheduler.add(prompt);
    const Batch& batch = scheduler.schedule();
    ASSERT_EQ(batch.entries.size(), 2u);
    EXPECT_EQ(batch.entries[0].sequence, &decoding);
    EXPECT_EQ(batch.entries[0].num_tokens, 1u);
    EXPECT_EQ(batch.entries[1].num_tokens, 7u);
    EXPECT_EQ(batch.num_tokens, 8u);
}

TEST(Scheduler, WithoutSplittingAPromptWaitsForAStepThatHoldsIt) {
    SchedulerConfig whole = config(8);
    whole.dynamic_split_fuse = false;
    Scheduler scheduler(whole, 100, block_size);
    Sequence first = make_sequence(5), second = make_sequence(6), longer = make_sequence(11);
    for (Sequence* sequence : {&first, &second, &longer}) scheduler.add(*sequence);
    EXPECT_EQ(scheduler.schedule().num_tokens, 5u);
    compute(scheduler, scheduler.schedule());
    const Batch& batch = scheduler.schedule();
    ASSERT_EQ(batch.entries.size(), 3u);
    EXPECT_EQ(batch.entries[1].num_tokens, 6u);  // all of the second prompt
    EXPECT_EQ(batch.entries[2].num_tokens, 1u);  // the longest: no step could hold it whole
}

TEST(Scheduler, WithoutSplittingAPromptThatFillsAStepGoesBeforeDecodesThatDoNotEnd) {
    SchedulerConfig whole = config(8);
    whole.dynamic_split_fuse = false;
    Scheduler scheduler(whole, 100, block_size);
    Sequence endless = make_sequence(1), prompt = make_sequence(8);
    scheduler.add(endless);
    compute(scheduler, scheduler.schedule());
    scheduler.add(prompt);
    for (int step = 0; step < 4; ++step) compute(scheduler, scheduler.schedule());
    EXPECT_GE(prompt.num_cached, 8u);
    EXPECT_GE(endless.num_cached, 4u);  // it waited for one step alone
}

TEST(Scheduler, WithoutSplittingARunningPromptIsNotOvertakenForEver) {
    SchedulerConfig whole = config(8);
    whole.dynamic_split_fuse = false;
    Scheduler scheduler(whole, 100, block_size);
    Sequence prompt = make_sequence(15);
    std::vector<Sequence> others(40, make_sequence(1));
    scheduler.add(prompt);
    for (size_t step = 0; step < others.size(); ++step) {  // each of the others stays for 3 tokens
        scheduler.add(others[step]);
        compute(scheduler, scheduler.schedule());
        for (Sequence& other : others)
            if (other.tokens.size() > 3 && other.is_running()) scheduler.remove(other);
    }
    EXPECT_GE(prompt.num_cached, 15u);
}

TEST(Scheduler, APromptsLastTokenIsAChunkLikeOthers) {
    Scheduler scheduler(config(4), 100, block_size);
    Sequence prompt = make_sequence(5), later = make_sequence(2);
    scheduler.add(prompt);
    compute(scheduler, scheduler.schedule());
    EXPECT_TRUE(prompt.is_prefilling());
    scheduler.add(later);
    EXPECT_EQ(scheduler.schedule().num_tokens, 3u);
    compute(scheduler, scheduler.schedule());
    EXPECT_FALSE(prompt.is_prefilling());
    EXPECT_FALSE(later.is_prefilling());
}

TEST(Scheduler, WithPrefixCachingWhatIsObservedIsAChunkOfItsOwn) {
    SchedulerConfig sharing = config(100);
    sharing.enable_prefix_caching = true;
    Scheduler scheduler(sharing, 16, block_size);
    for (int time = 0; time < 3; ++time) {
        Sequence sequence = make_sequence(30);
        sequence.max_chunk_slots = 20;
        sequence.num_observed = 3;
        scheduler.add(sequence);
        if (time == 0) {
            EXPECT_EQ(scheduler.schedule().num_tokens, 17u);
            compute(scheduler, scheduler.schedule());
        }
        for (const size_t tokens : {3, 10}) {  // the same, whatever came out of the tree
            const Batch& batch = scheduler.schedule();
            EXPECT_EQ(batch.num_tokens, tokens);
            compute(scheduler, batch);
            if (sequence.num_slots() == 20) scheduler.drop_blocks(sequence, {1, 2, 3}, 12);
        }
        EXPECT_EQ(sequence.num_prefix_hits, time == 0 ? 0u : 17u);
        scheduler.remove(sequence);
        scheduler.store().check_integrity();
    }
}

TEST(Scheduler, AdmitsNoMoreThanMaxNumSeqs) {
    Scheduler scheduler(config(100, 2), 100, block_size);
    std::vector<Sequence> sequences(3, make_sequence(3));
    for (Sequence& sequence : sequences) scheduler.add(sequence);
    EXPECT_EQ(scheduler.schedule().entries.size(), 2u);
    scheduler.remove(sequences[0]);
    const Batch& batch = scheduler.schedule();
    EXPECT_EQ(batch.entries.back().sequence, &sequences[2]);
}

TEST(Scheduler, PreemptsTheYoungestWhenADecodeNeedsABlock) {
    Scheduler scheduler(config(100), 4, block_size);
    Sequence older = make_sequence(8), younger = make_sequence(7, 50);
    scheduler.add(older);
    scheduler.add(younger);
    compute(scheduler, scheduler.schedule());  // 2 + 2 blocks: the pool is full
    const Batch& batch = scheduler.schedule();
    ASSERT_EQ(batch.entries.size(), 1u);
    EXPECT_EQ(batch.entries[0].sequence, &older);
    EXPECT_TRUE(younger.blocks.empty());
    EXPECT_EQ(younger.num_cached, 0u);
    EXPECT_EQ(scheduler.totals().num_preemptions, 1u);
    compute(scheduler, batch);

    scheduler.remove(older);
    const Batch& resumed = scheduler.schedule();
    ASSERT_EQ(resumed.entries.size(), 1u);
    EXPECT_EQ(resumed.entries[0].num_tokens, 8u);  // its prompt and the token it had generated
    EXPECT_TRUE(resumed.entries[0].samples());
}

TEST(Scheduler, BreaksADeadlockOfHalfComputedPrompts) {
    Scheduler scheduler(config(8), 4, block_size);
    Sequence first = make_sequence(10), second = make_sequence(4);
    scheduler.add(first);
    compute(scheduler, scheduler.schedule());
    // `second` is taken in for it fits beside what `first` still needs; both then outgrow the pool.
    scheduler.add(second);
    for (int step = 0; step < 12; ++step) {
        const Batch& batch = scheduler.schedule();
        ASSERT_FALSE(batch.empty());
        compute(scheduler, batch);
        if (first.tokens.size() == 16) scheduler.remove(first);
        if (second.tokens.size() == 10) return;
    }
    EXPECT_GE(second.tokens.size(), 8u);
}

TEST(Scheduler, CopiesASharedBlockBeforeTheFirstWrite) {
    Scheduler scheduler(config(100), 10, block_size);
    Sequence parent = make_sequence(6);
    scheduler.add(parent);
    compute(scheduler, scheduler.schedule());
    Sequence child = make_sequence(6);
    scheduler.fork(parent, child);
    child.tokens.push_back(7);
    EXPECT_EQ(child.blocks, parent.blocks);

    const std::vector<BlockId> before = parent.blocks;
    const Batch& batch = scheduler.schedule();
    ASSERT_EQ(batch.copies.size(), 1u);  // one of the two; the other then holds the block alone
    EXPECT_EQ(batch.copies[0].from, before[1]);
    EXPECT_EQ(parent.blocks[0], child.blocks[0]);
    EXPECT_NE(parent.blocks[1], child.blocks[1]);
    compute(scheduler, batch);
    scheduler.remove(parent);
    scheduler.remove(child);
    EXPECT_EQ(scheduler.pool().num_free(), 10u);
}

TEST(Scheduler, DropsBlocksOfASequenceAndGoesOnBehindThem) {
    Scheduler scheduler(config(100), 10, block_size);
    Sequence sequence = make_sequence(14);
    scheduler.add(sequence);
    compute(scheduler, scheduler.schedule());
    const std::vector<BlockId> before = sequence.blocks;
    scheduler.drop_blocks(sequence, {1, 2}, 8);
    EXPECT_EQ(sequence.blocks, (std::vector<BlockId>{before[0], before[3]}));
    EXPECT_EQ(sequence.num_cached, 14u);
    EXPECT_EQ(sequence.num_evicted, 8u);
    EXPECT_EQ(sequence.num_slots(), 6u);
    EXPECT_EQ(scheduler.pool().num_free(), 8u);
    EXPECT_THROW(scheduler.drop_blocks(sequence, {2}, 4), std::logic_error);
    EXPECT_THROW(scheduler.drop_blocks(sequence, {0, 1}, 8), std::logic_error);  // not full
    EXPECT_THROW(scheduler.drop_blocks(sequence, {0}, 1), std::logic_error);     // still needed
    EXPECT_THROW(scheduler.drop_blocks(sequence, {0, 0}, 8), std::logic_error);

    for (int step = 0; step < 3; ++step) compute(scheduler, scheduler.schedule());
    EXPECT_EQ(sequence.num_slots(), 9u);
    EXPECT_EQ(sequence.blocks.size(), 3u);  // it went on in the block that was not full
    scheduler.remove(sequence);
    EXPECT_EQ(scheduler.pool().num_free(), 10u);
}

TEST(Scheduler, ChunksEndWhereTheCacheIsEvicted) {
    Scheduler scheduler(config(100), 4, block_size);  // the pool holds 16 tokens
    Sequence sequence = make_sequence(30);
    sequence.max_chunk_slots = 12;
    scheduler.add(sequence);
    for (const size_t tokens : {12, 8, 8, 2}) {
        const Batch& batch = scheduler.schedule();
        ASSERT_EQ(batch.entries.size(), 1u);
        EXPECT_EQ(batch.entries[0].num_tokens, tokens);
        compute(scheduler, batch);
        if (sequence.num_slots() == 12) scheduler.drop_blocks(sequence, {0, 1}, 8);
    }
    EXPECT_EQ(sequence.num_cached, 30u);
    EXPECT_EQ(sequence.num_slots(), 6u);
}

TEST(Scheduler, GivesABlockThatIsToBeOverwrittenToItsSequenceAlone) {
    SchedulerConfig sharing = config(100);
    sharing.enable_prefix_caching = true;
    Scheduler scheduler(sharing, 16, block_size);
    Sequence parent = make_sequence(9), child = make_sequence(9);
    scheduler.add(parent);
    compute(scheduler, scheduler.schedule());
    scheduler.fork(parent, child);
    child.tokens = parent.tokens;
    const BlockId shared = parent.blocks[1];
    std::optional<BlockCopy> copy;
    EXPECT_TRUE(scheduler.own_block(child, 1, copy));
    ASSERT_TRUE(copy);
    EXPECT_EQ(copy->from, shared);
    EXPECT_EQ(copy->to, child.blocks[1]);
    EXPECT_EQ(parent.blocks[1], shared);
    EXPECT_TRUE(scheduler.own_block(child, 1, copy));
    EXPECT_FALSE(copy);  // it is its own now
    // The parent's is in the prefix tree, so it is copied as well, and stays there as it was.
    EXPECT_TRUE(scheduler.own_block(parent, 1, copy));
    ASSERT_TRUE(copy);
    EXPECT_NE(parent.blocks[1], shared);
    EXPECT_EQ(scheduler.store().tree().size(), 3u);
    scheduler.store().check_integrity();

    // What follows the overwritten block enters the tree no more.
    for (int step = 0; step < 4; ++step) compute(scheduler, scheduler.schedule());
    scheduler.remove(parent);
    scheduler.remove(child);
    EXPECT_EQ(scheduler.store().tree().size(), 3u);
    scheduler.store().check_integrity();
}

TEST(Scheduler, PreemptsToCopyASharedBlockAndSaysIfItHadToGoItself) {
    Scheduler scheduler(config(100), 3, block_size);
    Sequence parent = make_sequence(8), child = make_sequence(8);
    scheduler.add(parent);
    compute(scheduler, scheduler.schedule());
    scheduler.fork(parent, child);
    child.tokens = parent.tokens;
    std::optional<BlockCopy> copy;
    EXPECT_TRUE(scheduler.own_block(child, 0, copy));   // the third block
    EXPECT_FALSE(scheduler.own_block(child, 1, copy));  // none is left, and it ranks last
    EXPECT_TRUE(child.blocks.empty());
    EXPECT_EQ(scheduler.totals().num_preemptions, 1u);
    EXPECT_TRUE(scheduler.own_block(parent, 1, copy));
    EXPECT_FALSE(copy);
}

TEST(Scheduler, ServesHigherPrioritiesFirstAndEqualOnesInTheirOrder) {
    Scheduler scheduler(config(100, 1), 100, block_size);
    std::vector<Sequence> sequences(4, make_sequence(3));
    const std::vector<int> priorities{0, 1, 0, 1};
    for (size_t i = 0; i < 4; ++i) {
        sequences[i].priority = priorities[i];
        scheduler.add(sequences[i]);
    }
    for (size_t i : {1, 3, 0, 2}) {
        ASSERT_EQ(scheduler.schedule().entries.front().sequence, &sequences[i]);
        scheduler.remove(sequences[i]);
    }
}

TEST(Scheduler, WhoWaitsLongEnoughGoesBeforeAHigherPriority) {
    SchedulerConfig aging = config(100, 1);
    aging.aging_steps = 10;
    Scheduler scheduler(aging, 100, block_size);
    Sequence running = make_sequence(3), old = make_sequence(3);
    scheduler.add(running);
    compute(scheduler, scheduler.schedule());
    scheduler.add(old);
    for (int step = 0; step < 11; ++step) compute(scheduler, scheduler.schedule());
    running.priority = 9;  // is not preempted
    Sequence newer = make_sequence(3), newest = make_sequence(3);
    newer.priority = 1;
    newest.priority = 2;
    scheduler.add(newer);
    scheduler.add(newest);
    scheduler.remove(running);
    for (Sequence* sequence : {&newest, &old, &newer}) {
        ASSERT_EQ(scheduler.schedule().entries.front().sequence, sequence);
        scheduler.remove(*sequence);
    }
}

TEST(Scheduler, AHigherPriorityTakesTheBlocksOfALowerOne) {
    Scheduler scheduler(config(100), 6, block_size);
    Sequence low = make_sequence(12), equal = make_sequence(20), high = make_sequence(20);
    high.priority = 1;
    scheduler.add(low);
    compute(scheduler, scheduler.schedule());
    scheduler.add(equal);
    compute(scheduler, scheduler.schedule());
    EXPECT_EQ(scheduler.totals().num_preemptions, 0u);
    scheduler.add(high);
    const Batch& batch = scheduler.schedule();
    ASSERT_EQ(batch.entries.size(), 1u);
    EXPECT_EQ(batch.entries[0].sequence, &high);
    EXPECT_EQ(scheduler.queues().num_preempted, 1u);
    compute(scheduler, batch);
    scheduler.remove(high);
    EXPECT_EQ(scheduler.schedule().entries[0].sequence, &low);
    EXPECT_EQ(scheduler.queues().num_preempted, 0u);
}

TEST(Scheduler, ALongPromptLeavesHalfOfAStepToShortOnes) {
    Scheduler scheduler(config(64), 1000, block_size);
    Sequence prompt = make_sequence(600), decoding = make_sequence(2), brief = make_sequence(20);
    scheduler.add(decoding);
    compute(scheduler, scheduler.schedule());
    scheduler.add(prompt);
    EXPECT_EQ(scheduler.schedule().entries[1].num_tokens, 63u);  // alone it gets all
    compute(scheduler, scheduler.schedule());
    scheduler.add(brief);
    const Batch& batch = scheduler.schedule();
    ASSERT_EQ(batch.entries.size(), 3u);
    EXPECT_EQ(batch.entries[0].sequence, &decoding);
    EXPECT_EQ(batch.entries[2].sequence, &brief);
    EXPECT_TRUE(batch.entries[2].samples());
    EXPECT_EQ(batch.entries[1].num_tokens, 64u - 1 - 20);  // and what others leave
}

/// Takes down what is given back.
struct FreedMemory final : BlockMemory {
    explicit FreedMemory(size_t bytes) : bytes(bytes) {}

    size_t block_bytes() const override { return bytes; }
    void copy_block(BlockId, BlockId) override { ADD_FAILURE(); }
    void read_block(BlockId, char*) const override { ADD_FAILURE(); }
    void write_block(BlockId, const char*) override { ADD_FAILURE(); }
    void give_back(const BlockRange& range) override { ranges.push_back(range); }

    size_t bytes;
    std::vector<BlockRange> ranges;
};

TEST(Scheduler, GivesMemoryBackWhenMostOfMuchIsFree) {
    Scheduler scheduler(config(10000), 1000, block_size);
    Sequence large = make_sequence(4 * 400), small = make_sequence(4 * 10);
    scheduler.add(small);
    scheduler.add(large);
    compute(scheduler, scheduler.schedule());
    const auto freed = [&](size_t block_bytes) {
        FreedMemory memory(block_bytes);
        scheduler.give_back_unused(memory);
        size_t total = 0;
        for (const BlockRange& range : memory.ranges) {
            total += size_t(range.end - range.begin);
            for (BlockId block : small.blocks)
                EXPECT_FALSE(block >= range.begin && block < range.end);
        }
        return total;
    };
    constexpr size_t much = 1 << 20;
    EXPECT_EQ(freed(much), 0u);
    scheduler.remove(large);
    EXPECT_EQ(freed(1000), 0u);  // too little to care
    EXPECT_EQ(freed(much), 400u);
    EXPECT_EQ(freed(much), 0u);
    scheduler.remove(small);
}

TEST(Scheduler, APinOfHalfABlockOutlivesAClearedTreeBesideASequenceThatHasAllOfIt) {
    SchedulerConfig caching = config(64);
    caching.enable_prefix_caching = true;
    Scheduler scheduler(caching, 20, block_size);
    Sequence sequence = make_sequence(block_size + 1);
    scheduler.add(sequence);
    compute(scheduler, scheduler.schedule());
    EXPECT_EQ(scheduler.pins().pin({}, {0, 1}), 2u);
    scheduler.clear_prefixes();  // but for the pin's two tokens
    for (size_t i = 0; i < 2 * block_size; ++i) {
        compute(scheduler, scheduler.schedule());
        scheduler.store().check_integrity();
    }
    scheduler.remove(sequence);
    EXPECT_TRUE(scheduler.pins().unpin({}, {0, 1}));
    scheduler.clear_prefixes();
    EXPECT_EQ(scheduler.pool().num_free(), 20u);
}

TEST(Scheduler, AnIdleSequenceIsPreemptedAndWaitsOnlyFromItsNextTokenOn) {
    // Both need three blocks of four at the end, as two beams do that wait for each other.
    Scheduler scheduler(config(64), 4, block_size);
    Sequence first = make_sequence(2 * block_size), second = make_sequence(2 * block_size, 50);
    scheduler.add(first);
    scheduler.add(second);
    EXPECT_EQ(scheduler.schedule().entries.size(), 2u);
    scheduler.advance();
    ASSERT_TRUE(first.is_idle() && second.is_idle());
    first.tokens.push_back(7);
    scheduler.resume(first);  // it runs
    const Batch& batch = scheduler.schedule();
    ASSERT_EQ(batch.entries.size(), 1u);
    EXPECT_EQ(batch.entries[0].sequence, &first);
    EXPECT_EQ(second.stage, Sequence::Stage::SUSPENDED);
    scheduler.advance();
    Sequence child;
    child.tokens = second.tokens;
    child.tokens.push_back(8);
    scheduler.fork(second, child);  // of what does not run: it waits
    EXPECT_EQ(child.stage, Sequence::Stage::WAITING);
    // The first is idle now, and goes where the others have no room beside it.
    EXPECT_EQ(scheduler.schedule().entries.at(0).sequence, &child);
    EXPECT_EQ(first.stage, Sequence::Stage::SUSPENDED);
    scheduler.advance();
    for (Sequence* sequence : {&first, &second, &child}) scheduler.discard(*sequence);
    EXPECT_EQ(scheduler.pool().num_free(), 4u);
    EXPECT_EQ(scheduler.queues().num_preempted, 0u);
}

TEST(Scheduler, AStageThatCannotComeNextIsRefused) {
    Scheduler scheduler(config(64), 8, block_size);
    Sequence sequence = make_sequence(4);
    scheduler.add(sequence);
    EXPECT_THROW(scheduler.add(sequence), std::logic_error);
    EXPECT_EQ(sequence.stage, Sequence::Stage::WAITING);
    scheduler.discard(sequence);
    scheduler.discard(sequence);  // which may always be said
    EXPECT_EQ(sequence.stage, Sequence::Stage::OUTSIDE);
}

TEST(Scheduler, CutsJumpForwardTokensOfADecodeThatIsAlone) {
    Scheduler scheduler(config(64), 20, block_size, /*blocks_per_state=*/0, /*longest_decode=*/6);
    Sequence sequence = make_sequence(20);
    scheduler.add(sequence);
    EXPECT_EQ(scheduler.schedule().entries[0].num_tokens, 20u);
    scheduler.advance();
    sequence.tokens.resize(sequence.tokens.size() + 14, 7);
    for (const size_t tokens : {6, 6, 2}) {
        const Batch& batch = scheduler.schedule();
        EXPECT_EQ(batch.entries[0].num_tokens, tokens);
        EXPECT_EQ(batch.entries[0].samples(), tokens == 2);
        scheduler.advance();
    }
    scheduler.remove(sequence);
}

TEST(Scheduler, DraftsThatAreTakenBackLeaveNeitherBlocksNorPrefixes) {
    SchedulerConfig caching = config(64);
    caching.enable_prefix_caching = true;
    Scheduler scheduler(caching, 20, block_size);
    Sequence sequence = make_sequence(block_size - 1);
    scheduler.add(sequence);
    compute(scheduler, scheduler.schedule());  // and a token
    for (int64_t token : {1, 2, 3, 4, 5, 6}) sequence.tokens.push_back(token);
    sequence.num_drafted = 6;
    const Batch& batch = scheduler.schedule();
    ASSERT_EQ(batch.entries.size(), 1u);
    EXPECT_EQ(batch.entries[0].num_tokens, 7u);
    EXPECT_EQ(batch.entries[0].num_sampled, 7u);
    EXPECT_EQ(batch.entries[0].num_logits, 7u);
    scheduler.advance();
    EXPECT_EQ(sequence.blocks.size(), 3u);
    EXPECT_EQ(sequence.num_tree_blocks, 1u);  // what the drafts filled is not there
    sequence.drop_drafts();
    for (int64_t token : {1, 2, 9}) sequence.tokens.push_back(token);  // two are confirmed
    scheduler.rollback(sequence, 4);
    EXPECT_EQ(sequence.num_uncached(), 1u);
    EXPECT_EQ(sequence.blocks.size(), 2u);
    scheduler.store().check_integrity();
    scheduler.remove(sequence);
    PrefixMatch match;
    scheduler.store().tree().match({}, sequence.tokens.data(), sequence.tokens.size(), match);
    EXPECT_EQ(match.num_tokens, sequence.tokens.size() - 1);
}

}  // namespace
}  // namespace pagewheel
