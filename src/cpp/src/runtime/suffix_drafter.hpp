// Drafts by repetition: what came after the end of a text when it stood somewhere before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "runtime/drafting.hpp"

namespace pagewheel {

/// A text in which the longest ends of texts are found again: hash chains of n-grams, as LZ77's
/// (Ziv and Lempel 1977) in gzip. O(1) amortised per token; 24 bytes of memory each.
class SuffixIndex {
public:
    struct Match {
        size_t end = 0;     ///< index of the token that came after it
        size_t length = 0;  ///< of the match; 0: there is none
    };

    static constexpr int64_t separator = -1;  ///< equals no token

    /// Drops the older half of the text wherever it has `most` tokens.
    explicit SuffixIndex(size_t most = std::numeric_limits<uint32_t>::max()) : m_most(most) {}

    void append(int64_t token);
    size_t size() const { return m_text.size(); }
    int64_t operator[](size_t i) const { return m_text[i]; }
    /// The longest match of the end of `tokens`, at most `longest` tokens, among the latest places.
    Match find(const std::vector<int64_t>& tokens, size_t longest) const;

private:
    static constexpr size_t chained = 4;  // n-grams of so many tokens have chains

    size_t slot(size_t length, const int32_t* end) const;
    /// Enters the n-grams that end before token `end`.
    void enter(size_t end);

    size_t m_most;
    std::vector<int32_t> m_text;
    std::vector<uint32_t> m_heads;  // by hash: the latest end of an n-gram; 0: none. A power of two
    std::vector<uint32_t> m_before;  // by end: the end before it with the same hash
};

/// Looks in the request's own text, and in what requests with the same salt have generated before.
class SuffixDrafter final : public Drafter {
public:
    /// `learns`: answers are kept for later requests.
    explicit SuffixDrafter(bool learns) : m_learns(learns) {}

    void propose(SequenceState& sequence, size_t most, std::vector<Draft>& drafts) override;
    void finish(const SequenceState& sequence) override;
    void forget(const std::optional<std::set<std::string>>& salts) override;

private:
    struct Answers {
        SuffixIndex text;
        uint64_t last_use = 0;
    };

    const bool m_learns;
    std::map<std::string, Answers> m_answers;  // by salt
    uint64_t m_uses = 0;
};

}  // namespace pagewheel
