// The scheduler with the prefix tree, against a model of the cache.
#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "scheduling/scheduler.hpp"

namespace pagewheel {
namespace {

constexpr size_t block_size = 4;
using Tokens = std::vector<int64_t>;

SchedulerConfig config(size_t max_num_batched_tokens, size_t max_num_seqs = 256) {
    SchedulerConfig config;
    config.max_num_batched_tokens = max_num_batched_tokens;
    config.max_num_seqs = max_num_seqs;
    config.enable_prefix_caching = true;
    return config;
}

std::unique_ptr<Sequence> make_sequence(Tokens tokens) {
    auto sequence = std::make_unique<Sequence>();
    sequence->prompt_length = tokens.size();
    sequence->tokens = std::move(tokens);
    return sequence;
}

Tokens range(int64_t first, size_t count) {
    Tokens tokens(count);
    for (size_t i = 0; i < count; ++i) tokens[i] = first + int64_t(i);
    return tokens;
}

Tokens operator+(Tokens a, const Tokens& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

/// Steps until the sequences have `count` tokens more each; returns the prompt tokens computed.
size_t generate(Scheduler& scheduler, size_t count, int64_t token = 1000) {
    size_t computed = 0;
    for (size_t done = 0; done < count;) {
        const Batch& batch = scheduler.schedule();
        computed += batch.num_tokens;
        scheduler.advance();
        bool any = false;
        for (const BatchEntry& entry : batch.entries) {
            if (entry.samples()) entry.sequence->tokens.push_back(token);
            any = any || entry.samples();
        }
        done += any;
        scheduler.store().check_integrity();
    }
    return computed;
}

TEST(PrefixSharing, AChatComputesOnlyWhatIsNew) {
    Scheduler scheduler(config(100), 50, block_size);
    Tokens history = range(0, 10);
    size_t turns = 0;
    for (size_t end = 0; turns < 5; ++turns) {
        auto sequence = make_sequence(history);
        scheduler.add(*sequence);
        const size_t computed = generate(scheduler, 3, 500 + int64_t(turns));
        EXPECT_EQ(sequence->num_prefix_hits, end);
        EXPECT_EQ(computed, history.size() - end + 2);
        end = history.size() + 2;  // the last token that was generated was never computed
        history = sequence->tokens + Tokens{7, 8, 9};
        scheduler.remove(*sequence);
    }
    EXPECT_EQ(scheduler.totals().num_prefix_hits, 12u + 18 + 24 + 30);
}

TEST(PrefixSharing, APromptThatIsThereInFullComputesOneToken) {
    for (size_t length : {8u, 9u, 11u}) {
        Scheduler scheduler(config(100), 50, block_size);
        auto first = make_sequence(range(0, length)), second = make_sequence(range(0, length));
        scheduler.add(*first);
        generate(scheduler, 2);
        scheduler.remove(*first);
        scheduler.add(*second);
        const Batch& batch = scheduler.schedule();
        EXPECT_EQ(batch.num_tokens, 1u);
        // Of 9 tokens, the last one begins a block of its own.
        EXPECT_EQ(batch.copies.size(), length == 9 ? 0u : 1u);
        scheduler.remove(*second);
    }
}

TEST(PrefixSharing, RequestsThatArriveTogetherComputeTheirPrefixOnce) {
    Scheduler scheduler(config(32), 200, block_size);
    std::vector<std::unique_ptr<Sequence>> sequences;
    for (int i = 0; i < 10; ++i) {  // 50 tokens are shared: two of them in the 13th block
        sequences.push_back(make_sequence(range(0, 50) + range(1000 * (i + 1), 5)));
        scheduler.add(*sequences.back());
    }
    size_t computed = 0;
    while (scheduler.queues().num_waiting > 0 || sequences.back()->num_uncached() > 1) {
        computed += scheduler.schedule().num_tokens;
        scheduler.advance();
        scheduler.store().check_integrity();
        ASSERT_LT(computed, 1000u);
    }
    EXPECT_EQ(scheduler.totals().num_prefix_hits, 9u * 50);
    size_t total = 0;
    for (const auto& sequence : sequences) total += sequence->num_cached;
    EXPECT_EQ(total, 10u * 55);
    EXPECT_EQ(computed, 50u + 10 * 5);
}

TEST(PrefixSharing, FollowersOfASequenceThatEndsAreServed) {
    Scheduler scheduler(config(8), 50, block_size);
    auto leader = make_sequence(range(0, 13)), follower = make_sequence(range(0, 30)),
         cancelled = make_sequence(range(0, 35));
    for (Sequence* sequence : {leader.get(), follower.get(), cancelled.get()})
        scheduler.add(*sequence);
    scheduler.schedule();
    scheduler.advance();
    scheduler.schedule();  // the leader's last 5 tokens; 3 could be computed besides
    EXPECT_EQ(follower->stage, Sequence::Stage::FOLLOWING);
    EXPECT_EQ(cancelled->stage, Sequence::Stage::FOLLOWING);
    scheduler.remove(*cancelled);
    scheduler.discard(*leader);
    EXPECT_EQ(follower->stage, Sequence::Stage::WAITING);
    const Batch& batch = scheduler.schedule();
    ASSERT_EQ(batch.entries.size(), 1u);
    EXPECT_EQ(batch.entries[0].sequence, follower.get());
    EXPECT_EQ(follower->num_cached, 8u);
    scheduler.remove(*follower);
    scheduler.store().check_integrity();
}

TEST(PrefixSharing, ASequenceOfHigherPriorityDoesNotWaitForALowerOne) {
    Scheduler scheduler(config(8), 50, block_size);
    auto low = make_sequence(range(0, 40)), high = make_sequence(range(0, 30));
    high->priority = 1;
    scheduler.add(*low);
    scheduler.schedule();
    scheduler.add(*high);
    scheduler.advance();
    scheduler.schedule();
    EXPECT_NE(high->stage, Sequence::Stage::FOLLOWING);
    scheduler.remove(*low);
    scheduler.remove(*high);
}

TEST(PrefixSharing, APreemptedSequenceContinuesFromTheTree) {
    Scheduler scheduler(config(100), 6, block_size);
    auto older = make_sequence(range(0, 8)), younger = make_sequence(range(100, 9));
    scheduler.add(*older);
    scheduler.add(*younger);
    generate(scheduler, 5);  // `older` needs a fourth block: `younger` was preempted
    EXPECT_GT(scheduler.totals().num_preemptions, 0u);
    scheduler.remove(*older);
    const size_t known = younger->tokens.size();
    const Batch& batch = scheduler.schedule();
    ASSERT_EQ(batch.entries.size(), 1u);
    EXPECT_LT(batch.num_tokens, known);       // not all of it
    EXPECT_EQ(younger->num_prefix_hits, 0u);  // recomputing is no hit of the request's
    scheduler.remove(*younger);
    scheduler.store().check_integrity();
}

TEST(PrefixSharing, NothingBehindAnEvictedBlockIsShared) {
    Scheduler scheduler(config(100), 50, block_size);
    auto first = make_sequence(range(0, 20));
    scheduler.add(*first);
    scheduler.schedule();
    scheduler.advance();
    scheduler.drop_blocks(*first, {1, 3}, 2 * block_size);
    first->tokens.push_back(20);
    for (int64_t token = 21; token < 32; ++token) {
        scheduler.schedule();
        scheduler.advance();
        first->tokens.push_back(token);
    }
    scheduler.remove(*first);
    scheduler.store().check_integrity();
    auto second = make_sequence(range(0, 32));
    scheduler.add(*second);
    scheduler.schedule();
    EXPECT_EQ(second->num_prefix_hits, 20u);  // what was computed before the eviction
    scheduler.remove(*second);
}

/// Computes a prompt and lets it go.
void compute_once(Scheduler& scheduler, const Tokens& prompt) {
    auto sequence = make_sequence(prompt);
    scheduler.add(*sequence);
    generate(scheduler, 1);
    scheduler.remove(*sequence);
    scheduler.store().check_integrity();
}

size_t found(Scheduler& scheduler, const Tokens& tokens) {
    PrefixMatch match;
    scheduler.store().tree().match({}, tokens.data(), tokens.size(), match);
    return match.num_tokens;
}

TEST(PrefixSharing, AllTokensOfAPinOutliveLongerPromptsThatComeAndGo) {
    for (size_t pinned : {1u, 6u, 8u, 11u}) {
        Scheduler scheduler(config(100), 20, block_size);
        const Tokens pin = range(0, pinned), longer = pin + range(500, 20);
        compute_once(scheduler, pin);
        EXPECT_EQ(scheduler.pins().pin({}, pin), pinned);
        compute_once(scheduler, longer);
        compute_once(scheduler, pin + range(600, 3));
        const size_t room = scheduler.max_tokens() - 1;
        compute_once(scheduler, range(1000, room));  // all else is evicted
        EXPECT_EQ(found(scheduler, longer), pinned);
        compute_once(scheduler, longer);
        scheduler.clear_prefixes();
        EXPECT_EQ(found(scheduler, longer), pinned);

        EXPECT_TRUE(scheduler.pins().unpin({}, pin));
        compute_once(scheduler, range(1000, 79));
        EXPECT_EQ(found(scheduler, pin), 0u);
        scheduler.clear_prefixes();
        EXPECT_EQ(scheduler.pool().num_free(), 20u);
    }
}

TEST(PrefixSharing, APinWithinALongerPromptOutlivesIt) {
    Scheduler scheduler(config(100), 20, block_size);
    const Tokens longer = range(0, 20), pin = range(0, 10), other = range(0, 11);
    compute_once(scheduler, longer);
    EXPECT_EQ(scheduler.pins().pin({}, other), 11u);
    EXPECT_EQ(scheduler.pins().pin({}, pin), 10u);
    EXPECT_TRUE(scheduler.pins().unpin({}, other));
    compute_once(scheduler, range(1000, scheduler.max_tokens() - 1));
    EXPECT_GE(found(scheduler, longer), 10u);
    scheduler.clear_prefixes();
    EXPECT_EQ(found(scheduler, longer), 10u);
}

TEST(PrefixSharing, WhatIsNotThereInFullIsNotPinned) {
    Scheduler scheduler(config(100), 20, block_size);
    compute_once(scheduler, range(0, 10));
    EXPECT_EQ(scheduler.pins().pin({}, range(0, 12)), 10u);
    EXPECT_EQ(scheduler.pins().num_blocks(), 0u);
    EXPECT_FALSE(scheduler.pins().unpin({}, range(0, 10)));
}

TEST(PrefixSharing, PromptLogitsWantEveryTokenComputed) {
    Scheduler scheduler(config(100), 50, block_size);
    auto first = make_sequence(range(0, 20)), second = make_sequence(range(0, 20));
    second->wants_prompt_logits = true;
    scheduler.add(*first);
    scheduler.schedule();
    scheduler.advance();
    scheduler.add(*second);
    first->tokens.push_back(99);
    EXPECT_EQ(scheduler.schedule().num_tokens, 21u);
    scheduler.remove(*first);
    scheduler.remove(*second);
}

}  // namespace
}  // namespace pagewheel
