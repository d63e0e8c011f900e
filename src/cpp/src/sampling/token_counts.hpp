// How often each token occurs in a sequence that grows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pagewheel {

struct TokenCount {
    int64_t token;
    size_t count;
};

/// Sorted by token, so a copy is one block of memory: a beam that forks takes its counts along.
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

}  // namespace pagewheel
