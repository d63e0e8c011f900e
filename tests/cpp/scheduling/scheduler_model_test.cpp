// A million random operations on scheduler, pool and tree, against a model of the cache.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <set>
#include <tuple>

#include "scheduling/scheduler.hpp"

namespace pagewheel {
namespace {

constexpr size_t block_size = 4;

/// What a slot holds, as the model would compute it: it depends on the token and on all that was in
/// the cache before it.
using Content = uint64_t;
Content compute(Content before, int64_t token) {
    return (before ^ uint64_t(token)) * 0x9E3779B97F4A7C15u + 0x7F4A7C15u;
}

/// The cache's memory.
class FakeCache {
public:
    FakeCache(size_t num_blocks, size_t num_states)
        : m_slots(num_blocks * block_size, 0), m_states(num_states, 0) {}
    /// Of a sequence without tokens nothing is read.
    Content state(StateId state) const {
        return state == no_state ? no_tokens : m_states.at(size_t(state));
    }
    void write_state(StateId state, Content content) { m_states.at(size_t(state)) = content; }
    /// What nobody holds is nobody's to read.
    void spoil_free_states(const StatePool& states) {
        for (size_t i = 0; i < m_states.size(); ++i)
            if (states.is_free(StateId(i))) m_states[i] = ~no_tokens;
    }
    void copy(BlockCopy copy) {
        std::copy_n(&m_slots[size_t(copy.from) * block_size], block_size,
                    &m_slots[size_t(copy.to) * block_size]);
    }
    Content& slot(BlockId block, size_t i) { return m_slots.at(size_t(block) * block_size + i); }
    Content& slot(const Sequence& sequence, size_t i) {
        return slot(sequence.blocks.at(i / block_size), i % block_size);
    }

    static constexpr Content no_tokens = 17;

private:
    std::vector<Content> m_slots, m_states;
};

struct Tracked;
/// Beams of one request: they get tokens together, when all are computed.
struct Family {
    std::vector<Tracked*> beams;
    size_t num_beams = 0;  ///< once the prompt is computed
};

/// A sequence and what its slots must hold.
struct Tracked {
    Sequence sequence;
    std::vector<Content> expected;             // by slot
    Content state = 0;                         // of all it has computed, evicted or not
    Content recurrent = FakeCache::no_tokens;  // what its state holds, made of what slots hold
    /// State and recurrent before each token of the latest span, and after the last.
    std::vector<std::pair<Content, Content>> history;
    size_t num_split = 0;  // of the latest entry
    size_t num_evicted = 0;
    size_t num_left = 0;             // tokens to generate
    std::shared_ptr<Family> family;  // if it is a beam
    bool scored = false;             // its logits are there, those of others not yet
};

class Machine {
public:
    explicit Machine(unsigned seed) : m_random(seed) {
        m_config.max_num_batched_tokens = 1 + below(40);
        m_config.max_num_seqs = 1 + below(12);
        m_config.dynamic_split_fuse = below(4) != 0;
        m_config.enable_prefix_caching = below(5) != 0;
        const size_t num_blocks = 6 + below(30);
        const size_t blocks_per_state = below(2) == 0 ? 1 + below(3) : 0;
        m_config.checkpoint_fraction = below(6) == 0 ? 0.0f : 0.1f * float(1 + below(6));
        m_scheduler =
            std::make_unique<Scheduler>(m_config, num_blocks, block_size, blocks_per_state);
        m_cache = std::make_unique<FakeCache>(num_blocks, m_scheduler->store().states().size());
        for (auto& stem : m_stems)
            for (size_t i = below(30); i > 0; --i) stem.push_back(int64_t(below(3)));
    }

    void run(size_t num_operations) {
        for (m_operations = 0; m_operations < num_operations && !testing::Test::HasFailure();) {
            switch (below(8)) {
                case 0:
                    if (m_tracked.size() < 25) submit();
                    break;
                case 1:
                    if (below(4) == 0) cancel();
                    break;
                case 2:
                    if (below(30) == 0) fail();
                    break;
                case 3:
                    if (below(200) == 0) m_scheduler->clear_prefixes();
                    if (below(15) == 0) pin();
                    if (below(50) == 0) unpin();
                    break;
                default:
                    step();
            }
            ++m_operations;
            if (below(16) == 0) m_scheduler->store().check_integrity();
        }
        drain();
    }

    size_t num_submitted = 0, num_finished = 0, num_dropped = 0, num_forked = 0, num_pins = 0;
    size_t num_advanced = 0, num_late = 0;  // steps of beams, and those in parts
    size_t num_states_written = 0, num_states_found = 0, num_states_pinned = 0, num_replays = 0,
           num_splits = 0;
    const Scheduler& scheduler() const { return *m_scheduler; }

private:
    size_t below(size_t n) { return m_random() % n; }
    bool has_states() const { return m_scheduler->store().blocks_per_state() > 0; }

    void submit() {
        auto tracked = std::make_unique<Tracked>();
        Sequence& sequence = tracked->sequence;
        const auto& stem = m_stems[below(m_stems.size())];
        sequence.tokens.assign(stem.begin(), stem.begin() + long(below(stem.size() + 1)));
        for (size_t i = 1 + below(6); i > 0; --i) sequence.tokens.push_back(int64_t(below(3)));
        const size_t longest = m_scheduler->max_tokens() - 1;
        if (sequence.tokens.size() > longest) sequence.tokens.resize(longest);
        sequence.prompt_length = sequence.tokens.size();
        sequence.prefix_key.salt = below(5) == 0 ? "salt" : "";
        sequence.priority = int(below(3));
        sequence.wants_prompt_logits = below(20) == 0;
        if (below(4) == 0) sequence.num_observed = below(6);
        tracked->state = std::hash<std::string>()(sequence.prefix_key.salt);
        tracked->num_left = 1 + below(20);
        if (below(4) == 0 && m_tracked.size() < 15) {
            tracked->family = std::make_shared<Family>();
            tracked->family->beams = {tracked.get()};
            tracked->family->num_beams = 2 + below(4);
        }
        m_scheduler->add(sequence);
        m_tracked.push_back(std::move(tracked));
        ++num_submitted;
    }

    Tracked& of(const Sequence& sequence) {
        for (auto& tracked : m_tracked)
            if (&tracked->sequence == &sequence) return *tracked;
        throw std::logic_error("a sequence was scheduled that is not there");
    }

    /// What the sequence begins with was taken from the tree, or it begins again.
    void admit(Tracked& tracked, const Sequence& sequence) {
        if (tracked.expected.size() == sequence.num_slots() &&
            tracked.num_evicted == sequence.num_evicted)
            return;
        tracked.expected.clear();
        tracked.num_evicted = 0;
        tracked.recurrent = FakeCache::no_tokens;
        // Nothing was evicted: what it has is what it would have computed.
        tracked.state = std::hash<std::string>()(sequence.prefix_key.salt);
        for (size_t i = 0; i < sequence.num_slots(); ++i) append(tracked, sequence.tokens[i]);
        num_states_found += sequence.state != no_state;
    }

    static void append(Tracked& tracked, int64_t token) {
        tracked.state = compute(tracked.state, token);
        tracked.recurrent = compute(tracked.recurrent, int64_t(tracked.state));
        tracked.expected.push_back(tracked.state);
    }

    /// Guesses for sequences that decode, as the step loop has them.
    void draft() {
        for (const auto& tracked : m_tracked) {
            Sequence& sequence = tracked->sequence;
            if (tracked->family || sequence.stage != Sequence::Stage::DECODING) continue;
            const size_t room = m_scheduler->max_tokens() - sequence.tokens.size();
            sequence.num_drafted = std::min(below(5), room);
            for (size_t i = 0; i < sequence.num_drafted; ++i)
                sequence.tokens.push_back(int64_t(below(3)));
        }
    }

    const Batch& schedule() {
        const Batch& batch = m_scheduler->schedule();
        EXPECT_EQ(batch.empty(), m_tracked.empty());
        EXPECT_LE(batch.num_tokens, m_config.max_num_batched_tokens);
        EXPECT_LE(batch.entries.size(), m_config.max_num_seqs);
        return batch;
    }

    /// What is read before the entry's tokens is the state after all that came before them.
    void check_state(const Tracked& tracked) {
        const Sequence& sequence = tracked.sequence;
        const StatePool& states = m_scheduler->store().states();
        ASSERT_EQ(sequence.state == no_state, sequence.num_cached == 0);
        ASSERT_EQ(m_cache->state(sequence.state), tracked.recurrent);
        ASSERT_EQ(states.references(sequence.next_state), 1u) << "a shared state is written";
        ASSERT_FALSE(states.is_kept(sequence.next_state)) << "a checkpoint is written";
        ++num_states_written;
    }

    void step() {
        if (below(3) == 0) draft();
        const Batch& batch = schedule();
        m_cache->spoil_free_states(m_scheduler->store().states());
        for (BlockCopy copy : batch.copies) m_cache->copy(copy);
        size_t num_tokens = 0;
        for (const BatchEntry& entry : batch.entries) {
            const Sequence& sequence = *entry.sequence;
            Tracked& tracked = of(sequence);
            admit(tracked, sequence);
            num_tokens += entry.num_tokens;
            if (has_states()) check_state(tracked);
            tracked.history.clear();
            tracked.num_split = entry.num_split;
            for (size_t i = 0; i < entry.num_tokens; ++i) {
                tracked.history.emplace_back(tracked.state, tracked.recurrent);
                const size_t slot = sequence.num_slots() + i;
                ASSERT_EQ(m_scheduler->pool().references(sequence.blocks.at(slot / block_size)), 1u)
                    << "a shared block is written";
                append(tracked, sequence.tokens[sequence.num_cached + i]);
                m_cache->slot(sequence, slot) = tracked.state;
            }
            if (has_states()) m_cache->write_state(sequence.next_state, tracked.recurrent);
            if (entry.num_split > 0) {
                ASSERT_EQ(m_scheduler->store().states().references(sequence.state), 1u);
                ASSERT_FALSE(m_scheduler->store().states().is_kept(sequence.state));
                m_cache->write_state(sequence.state, tracked.history[entry.num_split].second);
                ++num_splits;
            }
        }
        ASSERT_EQ(num_tokens, batch.num_tokens);
        m_scheduler->advance();
        for (const auto& tracked : m_tracked) verify(*tracked);
        verify_pins();
        const std::vector<BatchEntry> entries = batch.entries;
        for (const BatchEntry& entry : entries) {
            Tracked& tracked = of(*entry.sequence);
            if (entry.samples()) sample(tracked, entry.num_sampled - 1);
        }
        for (const auto& tracked : m_tracked) tracked->sequence.drop_drafts();
        ASSERT_LE(m_scheduler->store().tree().checkpoints().size(),
                  m_scheduler->store().max_checkpoints());
    }

    void verify(const Tracked& tracked) {
        const Sequence& sequence = tracked.sequence;
        if (sequence.blocks.empty()) return;  // it waits
        ASSERT_EQ(tracked.expected.size(), sequence.num_slots());
        if (has_states()) {
            ASSERT_EQ(m_cache->state(sequence.state), tracked.recurrent);
            if (sequence.confirmed_state != no_state) {
                ASSERT_EQ(m_cache->state(sequence.confirmed_state),
                          tracked.history[tracked.num_split].second);
            }
        }
        for (size_t i = 0; i < sequence.num_slots(); ++i)
            ASSERT_EQ(m_cache->slot(sequence, i), tracked.expected[i]);
    }

    /// Some of the drafts are right, from the first on.
    void confirm(Tracked& tracked, size_t num_drafts) {
        Sequence& sequence = tracked.sequence;
        if (sequence.num_drafted == 0) return;
        const size_t confirmed = below(num_drafts + 1), end = sequence.num_committed() + confirmed;
        const std::vector<int64_t> tokens(sequence.tokens.begin(),
                                          sequence.tokens.begin() + long(end));
        sequence.drop_drafts();
        sequence.tokens = tokens;
        const size_t num_wrong = num_drafts - confirmed;
        m_scheduler->rollback(sequence, num_wrong);
        if (num_wrong == 0) return;
        const size_t left = tracked.expected.size() - sequence.num_slots();
        const size_t at = tracked.history.size() - left;
        if (has_states()) {
            ASSERT_EQ(at, tracked.num_split);
            ++num_replays;
        }
        std::tie(tracked.state, tracked.recurrent) = tracked.history[at];
        tracked.expected.resize(sequence.num_slots());
    }

    void sample(Tracked& tracked, size_t num_drafts) {
        confirm(tracked, num_drafts);
        if (tracked.family) {
            ASSERT_TRUE(tracked.sequence.is_idle());
            ASSERT_FALSE(tracked.scored);
            tracked.scored = true;
            advance(std::shared_ptr<Family>(tracked.family));
            return;
        }
        Sequence& sequence = tracked.sequence;
        if (below(10) == 0) evict(tracked);
        sequence.tokens.push_back(int64_t(below(3)));
        // Several at once, as where a grammar forces them.
        const size_t most = below(20) == 0 ? below(10) : 0;
        for (size_t i = 0; i < most && sequence.tokens.size() < m_scheduler->max_tokens(); ++i)
            sequence.tokens.push_back(int64_t(below(3)));
        const bool is_full = sequence.tokens.size() >= m_scheduler->max_tokens();
        if (below(30) == 0 && m_tracked.size() < 25 && !is_full) fork(tracked);
        if (--tracked.num_left == 0 || is_full) {
            ++num_finished;
            end(tracked);
        }
    }

    /// As the step loop does with a search's moves: what is continued once stays in place, what is
    /// not gives its sequence to another's second continuation.
    void advance(const std::shared_ptr<Family>& family) {
        if (!std::all_of(family->beams.begin(), family->beams.end(),
                         [](const Tracked* beam) { return beam->scored; })) {
            ++num_late;
            return;
        }
        ++num_advanced;
        Tracked& first = *family->beams.front();
        const bool is_full = first.sequence.tokens.size() >= m_scheduler->max_tokens();
        const size_t num_left = first.num_left - 1;
        if (num_left == 0 || is_full) {
            ++num_finished;
            end(first);
            return;
        }
        std::vector<Tracked*> next, unused;
        std::vector<std::pair<Tracked*, size_t>> continued;
        for (Tracked* beam : family->beams) continued.emplace_back(beam, 0);
        for (size_t i = 0; i < family->num_beams; ++i) ++continued[below(continued.size())].second;
        for (const auto& [beam, count] : continued) (count > 0 ? next : unused).push_back(beam);
        for (const auto& [beam, count] : continued)
            for (size_t i = 1; i < count; ++i) {
                Tracked* child = nullptr;
                if (unused.empty()) {
                    m_tracked.push_back(std::make_unique<Tracked>());
                    child = m_tracked.back().get();
                    child->family = family;
                    child->sequence.prompt_length = beam->sequence.prompt_length;
                    child->sequence.prefix_key = beam->sequence.prefix_key;
                    child->sequence.priority = beam->sequence.priority;
                } else {
                    child = unused.back();
                    unused.pop_back();
                }
                m_scheduler->discard(child->sequence);
                child->sequence.tokens = beam->sequence.tokens;
                child->expected = beam->expected;
                child->state = beam->state;
                child->recurrent = beam->recurrent;
                child->num_evicted = beam->num_evicted;
                m_scheduler->fork(beam->sequence, child->sequence);
                next.push_back(child);
                ++num_forked;
            }
        for (Tracked* beam : unused) {
            m_scheduler->discard(beam->sequence);
            forget(*beam);
        }
        for (Tracked* beam : next) {
            beam->sequence.tokens.push_back(int64_t(below(3)));
            beam->num_left = num_left;
            beam->scored = false;
            m_scheduler->resume(beam->sequence);
        }
        family->beams = next;
        for (Tracked* beam : next)
            if (below(20) == 0 && beam->sequence.is_running()) evict(*beam);
    }

    void fork(Tracked& parent) {
        auto child = std::make_unique<Tracked>();
        child->sequence.tokens = parent.sequence.tokens;
        child->sequence.tokens.back() = int64_t(below(3));
        child->sequence.prompt_length = parent.sequence.prompt_length;
        child->sequence.prefix_key = parent.sequence.prefix_key;
        child->sequence.priority = parent.sequence.priority;
        child->expected = parent.expected;
        child->state = parent.state;
        child->recurrent = parent.recurrent;
        child->num_evicted = parent.num_evicted;
        child->num_left = 1 + below(10);
        m_scheduler->fork(parent.sequence, child->sequence);
        m_tracked.push_back(std::move(child));
        ++num_forked;
    }

    void evict(Tracked& tracked) {
        const size_t num_full = tracked.sequence.num_slots() / block_size;
        std::vector<size_t> indices;
        for (size_t i = 0; i < num_full; ++i)
            if (below(4) == 0) indices.push_back(i);
        m_scheduler->drop_blocks(tracked.sequence, indices, indices.size() * block_size);
        for (size_t i = indices.size(); i-- > 0;) {
            const auto begin = tracked.expected.begin() + long(indices[i] * block_size);
            tracked.expected.erase(begin, begin + block_size);
        }
        // What it computes from now on is like nothing another sequence computes.
        if (!indices.empty()) tracked.state = m_random();
        tracked.num_evicted = tracked.sequence.num_evicted;
        num_dropped += indices.size();
    }

    void end(Tracked& tracked) {
        if (tracked.family) {
            const std::vector<Tracked*> beams = std::move(tracked.family->beams);
            for (Tracked* beam : beams) {
                m_scheduler->discard(beam->sequence);
                forget(*beam);
            }
            return;
        }
        m_scheduler->remove(tracked.sequence);
        forget(tracked);
    }
    void forget(const Tracked& tracked) {
        for (auto& place : m_tracked)
            if (place.get() == &tracked) {
                std::swap(place, m_tracked.back());
                m_tracked.pop_back();
                return;
            }
    }

    void cancel() {
        if (!m_tracked.empty()) end(*m_tracked[below(m_tracked.size())]);
    }

    void pin() {
        std::vector<int64_t> stem = m_stems[below(m_stems.size())];
        stem.resize(below(stem.size() + 1));
        PrefixPins& pins = m_scheduler->pins();
        const size_t per_state = m_scheduler->store().blocks_per_state();
        const size_t num_pinned = pins.num_blocks() + stem.size() / block_size + 1 + per_state;
        if (num_pinned + per_state > m_scheduler->pool().size()) return;
        const size_t room = m_scheduler->pool().size() - num_pinned - per_state;
        if (2 * num_pinned > m_scheduler->pool().size()) return;
        for (const auto& tracked : m_tracked)
            if (tracked->sequence.tokens.size() + tracked->num_left > room * block_size) return;
        if (stem.empty()) return;
        const size_t found = pins.pin({}, stem);
        if (found < stem.size() && (!has_states() || found == 0)) return;
        stem.resize(found);  // where there is a state
        ASSERT_EQ(pins.pin({}, stem), found);
        m_pinned.insert(stem);
        num_states_pinned += has_states();
        ++num_pins;
    }
    void unpin() {
        if (m_pinned.empty()) return;
        const auto pin = std::next(m_pinned.begin(), long(below(m_pinned.size())));
        ASSERT_TRUE(m_scheduler->pins().unpin({}, *pin));
        m_pinned.erase(pin);
    }

    /// All tokens of every pin are found, with what was computed for them.
    void verify_pins() {
        for (const auto& tokens : m_pinned) {
            PrefixMatch match;
            m_scheduler->store().tree().match({}, tokens.data(), tokens.size(), match);
            ASSERT_EQ(match.num_tokens, tokens.size());
            if (match.num_partial > 0) match.blocks.push_back(match.partial);
            Tracked expected;
            expected.state = std::hash<std::string>()("");
            for (size_t i = 0; i < tokens.size(); ++i) {
                append(expected, tokens[i]);
                ASSERT_EQ(m_cache->slot(match.blocks[i / block_size], i % block_size),
                          expected.state);
            }
            if (has_states()) {
                ASSERT_EQ(m_cache->state(match.state), expected.recurrent);
            }
        }
    }

    /// The model fails: nothing of the step was computed, or something wrong.
    void fail() {
        const Batch& batch = schedule();
        std::vector<Tracked*> failed;
        for (const BatchEntry& entry : batch.entries) {
            Tracked& tracked = of(*entry.sequence);
            if (has_states()) m_cache->write_state(entry.sequence->next_state, m_random());
            for (size_t i = 0; i < entry.num_tokens; ++i)
                m_cache->slot(*entry.sequence, entry.sequence->num_slots() + i) = m_random();
            const auto own = std::vector<Tracked*>{&tracked};
            for (Tracked* one : tracked.family ? tracked.family->beams : own)
                if (std::find(failed.begin(), failed.end(), one) == failed.end())
                    failed.push_back(one);
        }
        for (Tracked* tracked : failed) {
            m_scheduler->discard(tracked->sequence);
            forget(*tracked);
        }
    }

    void drain() {
        while (!m_tracked.empty() && !testing::Test::HasFailure()) step();
        while (!m_pinned.empty()) unpin();
        const BlockPool& pool = m_scheduler->pool();
        m_scheduler->store().check_integrity();
        ASSERT_EQ(m_scheduler->queues().num_running + m_scheduler->queues().num_waiting, 0u);
        ASSERT_EQ(m_scheduler->store().num_available(), pool.size());
        ASSERT_EQ(m_scheduler->store().states().num_held(), 0u);
        m_scheduler->clear_prefixes();
        ASSERT_EQ(m_scheduler->store().states().num_idle(), 0u);
        ASSERT_EQ(pool.num_free(), pool.size());
    }

    std::mt19937 m_random;
    SchedulerConfig m_config;
    std::unique_ptr<Scheduler> m_scheduler;
    std::unique_ptr<FakeCache> m_cache;
    std::vector<std::unique_ptr<Tracked>> m_tracked;
    std::array<std::vector<int64_t>, 4> m_stems;
    std::set<std::vector<int64_t>> m_pinned;
    size_t m_operations = 0;
};

TEST(SchedulerModel, KeepsEveryCachedTokenThroughAMillionOperations) {
    size_t finished = 0, forked = 0, dropped = 0, preempted = 0, hits = 0, advanced = 0, late = 0,
           pinned = 0, states = 0, states_found = 0, states_pinned = 0, replays = 0, splits = 0;
    for (unsigned seed = 0; seed < 260 && !HasFailure(); ++seed) {
        SCOPED_TRACE(seed);
        Machine machine(seed);
        machine.run(5000);
        finished += machine.num_finished;
        forked += machine.num_forked;
        advanced += machine.num_advanced;
        late += machine.num_late;
        pinned += machine.num_pins;
        states += machine.num_states_written;
        states_found += machine.num_states_found;
        states_pinned += machine.num_states_pinned;
        replays += machine.num_replays;
        splits += machine.num_splits;
        dropped += machine.num_dropped;
        preempted += machine.scheduler().totals().num_preemptions;
        hits += machine.scheduler().totals().num_prefix_hits;
    }
    // It did not pass for want of work.
    EXPECT_GT(finished, 50000u);
    EXPECT_GT(forked, 10000u);
    EXPECT_GT(advanced, 10000u);
    EXPECT_GT(late, 10000u);
    EXPECT_GT(dropped, 10000u);
    EXPECT_GT(preempted, 10000u);
    EXPECT_GT(hits, 100000u);
    EXPECT_GT(pinned, 1000u);
    EXPECT_GT(states, 100000u);
    EXPECT_GT(states_found, 3000u);
    EXPECT_GT(splits, 10000u);
    EXPECT_GT(states_pinned, 100u);
    EXPECT_GT(replays, 10000u);
}

}  // namespace
}  // namespace pagewheel
