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
void compute(const Batch& batch) {
    for (const BatchEntry& entry : batch.entries) {
        entry.sequence->num_cached += entry.num_tokens;
        if (entry.samples) entry.sequence->tokens.push_back(1000);
    }
}

TEST(Scheduler, SplitsAPromptByTheTokenBudget) {
    Scheduler scheduler(config(8), 100, block_size);
    Sequence sequence = make_sequence(19);
    scheduler.add(sequence);
    for (const auto& [tokens, samples] : {std::pair(8, false), {8, false}, {3, true}, {1, true}}) {
        const Batch& batch = scheduler.schedule();
        ASSERT_EQ(batch.entries.size(), 1u);
        EXPECT_EQ(batch.entries[0].num_tokens, size_t(tokens));
        EXPECT_EQ(batch.entries[0].samples, samples);
        compute(batch);
    }
}

TEST(Scheduler, TakesDecodesBeforeChunksOfPrompts) {
    Scheduler scheduler(config(8), 100, block_size);
    Sequence decoding = make_sequence(2), prompt = make_sequence(20);
    scheduler.add(decoding);
    compute(scheduler.schedule());
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
    compute(scheduler.schedule());
    const Batch& batch = scheduler.schedule();
    ASSERT_EQ(batch.entries.size(), 3u);
    EXPECT_EQ(batch.entries[1].num_tokens, 6u);  // all of the second prompt
    EXPECT_EQ(batch.entries[2].num_tokens, 1u);  // the longest: no step could hold it whole
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
    compute(scheduler.schedule());  // 2 + 2 blocks: the pool is full
    const Batch& batch = scheduler.schedule();
    ASSERT_EQ(batch.entries.size(), 1u);
    EXPECT_EQ(batch.entries[0].sequence, &older);
    EXPECT_TRUE(younger.blocks.empty());
    EXPECT_EQ(younger.num_cached, 0u);
    EXPECT_EQ(scheduler.num_preemptions(), 1u);
    compute(batch);

    scheduler.remove(older);
    const Batch& resumed = scheduler.schedule();
    ASSERT_EQ(resumed.entries.size(), 1u);
    EXPECT_EQ(resumed.entries[0].num_tokens, 8u);  // its prompt and the token it had generated
    EXPECT_TRUE(resumed.entries[0].samples);
}

TEST(Scheduler, BreaksADeadlockOfHalfComputedPrompts) {
    Scheduler scheduler(config(8), 4, block_size);
    Sequence first = make_sequence(10), second = make_sequence(4);
    scheduler.add(first);
    compute(scheduler.schedule());
    // `second` is taken in for it fits beside what `first` still needs; both then outgrow the pool.
    scheduler.add(second);
    for (int step = 0; step < 12; ++step) {
        const Batch& batch = scheduler.schedule();
        ASSERT_FALSE(batch.empty());
        compute(batch);
        if (first.tokens.size() == 16) scheduler.remove(first);
        if (second.tokens.size() == 10) return;
    }
    EXPECT_GE(second.tokens.size(), 8u);
}

TEST(Scheduler, CopiesASharedBlockBeforeTheFirstWrite) {
    Scheduler scheduler(config(100), 10, block_size);
    Sequence parent = make_sequence(6);
    scheduler.add(parent);
    compute(scheduler.schedule());
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
    compute(batch);
    scheduler.remove(parent);
    scheduler.remove(child);
    EXPECT_EQ(scheduler.pool().num_free(), 10u);
}

/// The cache as the model sees it: the token whose keys and values a slot holds.
class FakeCache {
public:
    void step(const Batch& batch) {
        for (const BlockCopy& copy : batch.copies)
            for (size_t i = 0; i < block_size; ++i) m_slots[{copy.to, i}] = m_slots[{copy.from, i}];
        for (const BatchEntry& entry : batch.entries)
            for (size_t i = 0; i < entry.num_tokens; ++i) {
                const size_t position = entry.sequence->num_cached + i;
                m_slots[slot(*entry.sequence, position)] = entry.sequence->tokens[position];
            }
    }
    bool holds(const Sequence& sequence) {
        for (size_t i = 0; i < sequence.num_cached; ++i)
            if (m_slots[slot(sequence, i)] != sequence.tokens[i]) return false;
        return true;
    }

private:
    std::pair<BlockId, size_t> slot(const Sequence& sequence, size_t position) const {
        return {sequence.blocks.at(position / block_size), position % block_size};
    }
    std::map<std::pair<BlockId, size_t>, int64_t> m_slots;
};

TEST(Scheduler, KeepsEveryCachedTokenThroughRandomWork) {
    for (unsigned seed = 0; seed < 20; ++seed) {
        std::mt19937 random(seed);
        const auto below = [&](size_t n) { return random() % n; };
        SchedulerConfig settings = config(1 + below(40), 1 + below(12));
        settings.dynamic_split_fuse = below(2) == 0;
        Scheduler scheduler(settings, 6 + below(20), block_size);
        FakeCache cache;
        std::vector<std::unique_ptr<Sequence>> sequences;
        size_t finished = 0;
        for (int step = 0; step < 2000; ++step) {
            if (below(4) == 0 && sequences.size() < 30) {
                const size_t longest = scheduler.max_tokens() - 1;
                sequences.push_back(std::make_unique<Sequence>(
                    make_sequence(1 + below(longest), int64_t(step) * 1000)));
                scheduler.add(*sequences.back());
            }
            const Batch& batch = scheduler.schedule();
            ASSERT_EQ(batch.empty(), sequences.empty());
            ASSERT_LE(batch.num_tokens, settings.max_num_batched_tokens);
            ASSERT_LE(batch.entries.size(), settings.max_num_seqs);
            cache.step(batch);
            for (const BatchEntry& entry : batch.entries) {
                entry.sequence->num_cached += entry.num_tokens;
                if (entry.samples) entry.sequence->tokens.push_back(int64_t(random()));
            }
            for (auto& sequence : sequences) ASSERT_TRUE(cache.holds(*sequence)) << "seed " << seed;

            if (!batch.empty() && below(20) == 0) {  // a request with several samples
                const Sequence& parent = *batch.entries[below(batch.entries.size())].sequence;
                if (parent.num_uncached() == 1) {
                    sequences.push_back(std::make_unique<Sequence>(parent));
                    sequences.back()->blocks.clear();
                    sequences.back()->tokens.back() = int64_t(random());
                    scheduler.fork(parent, *sequences.back());
                }
            }
            for (size_t i = sequences.size(); i-- > 0;) {
                const bool full = sequences[i]->tokens.size() >= scheduler.max_tokens();
                if (!full && below(40) != 0) continue;
                scheduler.remove(*sequences[i]);
                sequences.erase(sequences.begin() + long(i));
                ++finished;
            }
            scheduler.pool().check_integrity();
        }
        for (auto& sequence : sequences) scheduler.remove(*sequence);
        EXPECT_GT(finished, 20u);
        EXPECT_EQ(scheduler.pool().num_free(), scheduler.pool().size());
    }
}

}  // namespace
}  // namespace pagewheel
