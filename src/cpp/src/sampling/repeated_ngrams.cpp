#include "sampling/repeated_ngrams.hpp"

#include <algorithm>

namespace pagewheel {

void RepeatedNgrams::process(const LogitsRow& row, const TokenHistory& history) {
    const std::vector<int64_t>& tokens = history.tokens;
    if (m_size > tokens.size()) return;
    const auto before = ptrdiff_t(m_size - 1);
    const auto tail = tokens.end() - before;
    for (auto at = tokens.begin(); at + before < tokens.end(); ++at)
        if (std::equal(tail, tokens.end(), at)) row.ban(at[before]);
}

}  // namespace pagewheel
