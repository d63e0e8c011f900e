#include "sampling/repetition_penalty.hpp"

#include <algorithm>
#include <cmath>

namespace pagewheel {

void RepetitionPenalty::process(const LogitsRow& row, const TokenHistory& history) {
    constexpr double most = std::numeric_limits<float>::max();
    // By sign, for a branch on it is hard to predict: 6 us instead of 17 for 2000 tokens.
    const double factors[] = {m_penalty, 1.0}, divisors[] = {1.0, m_penalty};
    m_seen.update(history.tokens, 0);
    for (const auto& [token, count] : m_seen) {
        if (!row.has(token) || !std::isfinite(row.logits[token])) continue;
        const double value = double(row.logits[token]) - row.offset;
        const bool is_positive = value > 0;
        const double changed = value * factors[is_positive] / divisors[is_positive];
        row.logits[token] = float(std::clamp(changed + row.offset, -most, most));
    }
}

}  // namespace pagewheel
