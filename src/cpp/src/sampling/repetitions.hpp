// What a growing sequence repeats: counts of its tokens, and what followed its last ones before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "pagewheel/logits_processor.hpp"

namespace pagewheel {

struct TokenCount {
    int64_t token;
    size_t count;
};

/// How often each token occurs in a sequence that grows. Sorted by token, so a copy is one block of
/// memory: a beam that forks takes its counts along.
class TokenCounts {
public:
    /// Counts what `tokens` has got since the last call, in the first call from index `first` on.
    void update(const std::vector<int64_t>& tokens, size_t first);

    std::vector<TokenCount>::const_iterator begin() const { return m_counts.begin(); }
    std::vector<TokenCount>::const_iterator end() const { return m_counts.end(); }

private:
    std::vector<TokenCount> m_counts;
    std::vector<int64_t> m_fresh;  // empty but in update(): only its memory is kept
    size_t m_num_read = 0;         // tokens of the sequence that were looked at
};

/// The tokens that have followed each gram, `size` tokens in a row, of a sequence that grows.
/// Reading and finding take time in proportion to the different tokens that followed, whatever the
/// sequence and the gram repeat, but for a logarithm of the length.
///
/// A gram is told by a hash of 61 bits with a random factor: that two of a million grams of ten
/// tokens are taken for one has a probability of 2e-6. A copy shares what was read until seal().
class GramFollowers {
public:
    explicit GramFollowers(size_t size);

    /// Reads the first `end` of the tokens, but for those that were read before.
    void read(const std::vector<int64_t>& tokens, size_t end);
    void seal();
    /// Fills `followers` with the tokens that followed the latest gram; some may come twice.
    void find(std::vector<int64_t>& followers) const;

private:
    struct Entry {
        uint64_t gram;
        int64_t follower;

        bool operator<(const Entry& other) const {
            return gram != other.gram ? gram < other.gram : follower < other.follower;
        }
    };
    using Entries = std::vector<Entry>;

    void add(const Entry& entry);
    /// Moves what is fresh to the sorted entries.
    void merge();

    size_t m_size;
    uint64_t m_factor, m_power;  // the second is the factor to the power of m_size
    uint64_t m_gram = 0;         // the hash of the latest one
    size_t m_num_read = 0;
    std::shared_ptr<const Entries> m_sealed;  // sorted, as m_own
    Entries m_own, m_fresh;
};

/// The state of a processor that reads its sequence's tokens. Those of one request are copies of
/// one another: the first that is asked reads their prompt. Any thread may ask each of them.
///
/// State has read(tokens, end), which goes on where it was, and seal(), behind the prompt.
template <class State>
class SharedPrompt {
public:
    explicit SharedPrompt(State blank) : m_prompt(std::make_shared<Prompt>(std::move(blank))) {}

    /// The state after all tokens of the history.
    State& read(const TokenHistory& history) {
        if (!m_state) {
            std::call_once(m_prompt->is_read, [&] {
                m_prompt->state.read(history.tokens, history.prompt_length);
                m_prompt->state.seal();
            });
            m_state = m_prompt->state;
        }
        m_state->read(history.tokens, history.tokens.size());
        return *m_state;
    }

private:
    struct Prompt {
        explicit Prompt(State blank) : state(std::move(blank)) {}

        std::once_flag is_read;
        State state;
    };

    std::shared_ptr<Prompt> m_prompt;
    std::optional<State> m_state;
};

}  // namespace pagewheel
