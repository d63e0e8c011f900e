// CTRL's penalty on tokens that occurred (Keskar et al. 2019).
#include <algorithm>
#include <cmath>

#include "sampling/logits_chain.hpp"
#include "sampling/token_counts.hpp"

namespace pagewheel {

/// Divides positive values by the penalty and multiplies the others by it, once for each token in
/// prompt and generation. What is finite stays finite; what is banned stays banned.
std::unique_ptr<LogitsProcessor> make_repetition_penalty(const GenerationConfig& config,
                                                         const TokenRules& /*rules*/) {
    if (config.repetition_penalty == 1.0f) return nullptr;
    return make_processor([penalty = double(config.repetition_penalty), seen = TokenCounts()](
                              const LogitsRow& row, const TokenHistory& history) mutable {
        constexpr double most = std::numeric_limits<float>::max();
        // By sign, for a branch on it is hard to predict: 6 us instead of 17 for 2000 tokens.
        const double factors[] = {penalty, 1.0}, divisors[] = {1.0, penalty};
        seen.update(history.tokens, 0);
        for (const auto& [token, count] : seen) {
            if (!row.has(token) || !std::isfinite(row.logits[token])) continue;
            const double value = double(row.logits[token]) - row.offset;
            const bool is_positive = value > 0;
            const double changed = value * factors[is_positive] / divisors[is_positive];
            row.logits[token] = float(std::clamp(changed + row.offset, -most, most));
        }
    });
}

}  // namespace pagewheel
