// A model for tests of the engine: what it answers is written down, and nothing is computed.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/check.hpp"

#include "runner/model.hpp"

namespace pagewheel {

/// After token t comes next(t); by default t + 1, and 0 after the last. Its cache holds the tokens
/// themselves: each run checks that a sequence finds in its blocks what it has computed, and in its
/// state, if there are states, which are the tokens that they have seen.
///
/// Hidden states are hashes of all tokens so far. A head's follow from those that it is given: each
/// run checks that the ones it was given for the tokens in the cache follow from each other, so
/// that a wrong one, or a token in the wrong place, is seen.
class ScriptedModel final : public Model, private BlockMemory {
public:
    static constexpr size_t words = 100, tokens_per_block = 4, bytes_per_block = size_t(1) << 30;

    std::function<int64_t(int64_t)> next = [](int64_t token) {
        return (token + 1) % int64_t(words);
    };
    /// Logits [words], all zero before, after the first `count` of `tokens`.
    std::function<void(const std::vector<int64_t>& tokens, size_t count, float* logits)> score =
        [this](const std::vector<int64_t>& tokens, size_t count, float* logits) {
            logits[size_t(next(tokens[count - 1]))] = 10.0f;
        };
    bool gives_states = false, is_head = false;
    /// The hidden state that score() is called with.
    float state = 0;
    /// Called first in each run, and may throw.
    std::function<void(const Batch&)> before_run = [](const Batch&) {};
    /// Called when a run is over and nothing of it was counted yet; may throw.
    std::function<void()> after_run = [] {};
    /// What give_back() does, outside of any run.
    std::function<void()> when_memory_is_unused = [] {};

    explicit ScriptedModel(size_t blocks_per_state = 0) : m_blocks_per_state(blocks_per_state) {}

    size_t vocabulary() const override { return words; }
    size_t num_threads() const override { return 4; }
    size_t block_size() const override { return tokens_per_block; }
    size_t block_bytes() const override { return bytes_per_block; }
    size_t blocks_per_state() const override { return m_blocks_per_state; }
    void allocate_cache(size_t num_blocks) override {
        m_blocks.resize(num_blocks);
        m_states.resize(num_blocks);
    }
    BlockMemory& cache() override { return *this; }
    std::string cache_description() const override { return "scripted"; }

    size_t hidden_size() const override { return gives_states || is_head ? 1 : 0; }
    bool reads_hidden_states() const override { return is_head; }
    const float* hidden_states() override {
        return gives_states || is_head ? m_given.data() : nullptr;
    }
    float* hidden_input(size_t num_tokens) override {
        m_input.resize(num_tokens);
        return m_input.data();
    }

    Logits run(const Batch& batch, const std::vector<size_t>&) override {
        before_run(batch);
        for (const BlockCopy& copy : batch.copies) copy_block(copy.from, copy.to);
        for (const BatchEntry& entry : batch.entries)
            for (size_t i = 0; i < entry.num_tokens; ++i)
                slot(*entry.sequence, entry.sequence->num_cached + i) =
                    entry.sequence->tokens[entry.sequence->num_cached + i];
        m_logits.clear();
        m_given.clear();
        const float* input = m_input.data();
        for (const BatchEntry& entry : batch.entries) {
            const Sequence& sequence = *entry.sequence;
            const size_t end = sequence.num_cached + entry.num_tokens;
            for (size_t i = 0; i < end; ++i)
                check_invariant(slot(sequence, i) == sequence.tokens[i], "token ", i,
                                " is not in its slot");
            if (m_blocks_per_state > 0) continue_state(entry, end);
            const std::vector<float> states = states_of(sequence, entry.num_tokens, input);
            if (is_head) input += entry.num_tokens;
            const size_t given = is_head ? entry.num_logits : entry.num_tokens;
            m_given.insert(m_given.end(), states.end() - long(given), states.end());
            for (size_t count = end - entry.num_logits + 1; count <= end; ++count) {
                state = states[count - 1];
                m_logits.resize(m_logits.size() + words, 0.0f);
                score(sequence.tokens, count, &m_logits[m_logits.size() - words]);
            }
        }
        return {m_logits.data(), m_logits.size() / words, words};
    }
    Times times() const override {
        after_run();
        return {};
    }

    std::vector<LayerCache> layer_caches() const override { return {}; }
    const std::vector<const float*>& scores(size_t) override { return m_scores; }
    const std::vector<RotaryKind>& rotated_in_place() const override { return m_kinds; }

private:
    void continue_state(const BatchEntry& entry, size_t end) {
        const Sequence& sequence = *entry.sequence;
        const auto begin = sequence.tokens.begin();
        std::vector<int64_t> seen;
        if (sequence.state != no_state) seen = m_states.at(size_t(sequence.state));
        check_invariant(seen == std::vector<int64_t>(begin, begin + long(sequence.num_cached)),
                        "a state has not seen what came before");
        m_states.at(size_t(sequence.next_state)).assign(begin, begin + long(end));
        if (entry.num_split == 0) return;
        const size_t split = sequence.num_cached + entry.num_split;
        m_states.at(size_t(sequence.state)).assign(begin, begin + long(split));
    }
    static float state_after(float state, int64_t token) {
        return float((int64_t(state) * 31 + token + 1) % (1 << 24));
    }
    /// After each of the sequence's tokens, of which the last ones are new.
    std::vector<float> states_of(const Sequence& sequence, size_t num_tokens, const float* input) {
        std::vector<float> states;
        float state = 0;
        for (size_t i = 0; i < sequence.num_cached + num_tokens; ++i) {
            if (is_head) {
                float& kept = m_kept[slot_of(sequence, i)];
                if (i >= sequence.num_cached) kept = *input++;
                check_invariant(i == 0 || kept == state, "token ", i,
                                " has another's hidden state");
                state = kept;
            }
            states.push_back(state = state_after(state, sequence.tokens[i]));
        }
        return states;
    }
    static size_t slot_of(const Sequence& sequence, size_t i) {
        return size_t(sequence.blocks.at(i / tokens_per_block)) * tokens_per_block +
               i % tokens_per_block;
    }
    int64_t& slot(const Sequence& sequence, size_t i) {
        const BlockId block = sequence.blocks.at(i / tokens_per_block);
        return m_blocks.at(size_t(block))[i % tokens_per_block];
    }

    void copy_block(BlockId from, BlockId to) override {
        m_blocks.at(size_t(to)) = m_blocks.at(size_t(from));
    }
    void read_block(BlockId, char*) const override { throw std::logic_error("nothing is there"); }
    void write_block(BlockId, const char*) override { throw std::logic_error("nothing is kept"); }
    void give_back(const BlockRange&) override { when_memory_is_unused(); }

    const size_t m_blocks_per_state;
    std::vector<std::array<int64_t, tokens_per_block>> m_blocks;
    std::vector<std::vector<int64_t>> m_states;
    std::vector<float> m_logits, m_given, m_input;
    std::map<size_t, float> m_kept;  // a head's, by slot
    std::vector<const float*> m_scores;
    std::vector<RotaryKind> m_kinds;
};

}  // namespace pagewheel
