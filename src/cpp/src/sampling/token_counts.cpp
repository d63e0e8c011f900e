#include "sampling/token_counts.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace pagewheel {

void TokenCounts::update(const std::vector<int64_t>& tokens, size_t first) {
    first = std::max(first, m_num_read);
    check_invariant(first <= tokens.size(), "a sequence of ", tokens.size(), " tokens had ", first);
    m_num_read = tokens.size();
    // In order, each is searched after the one before: a whole prompt is as cheap as its sorting.
    m_fresh.assign(tokens.begin() + ptrdiff_t(first), tokens.end());
    std::sort(m_fresh.begin(), m_fresh.end());
    auto place = m_counts.begin();
    for (const int64_t token : m_fresh) {
        place = std::lower_bound(
            place, m_counts.end(), token,
            [](const TokenCount& count, int64_t wanted) { return count.token < wanted; });
        if (place == m_counts.end() || place->token != token)
            place = m_counts.insert(place, {token, 0});
        ++place->count;
    }
    m_fresh.clear();
}

}  // namespace pagewheel
