// CTRL's penalty on tokens that occurred (Keskar et al. 2019).
#include <algorithm>
#include <cmath>

#include "sampling/logits_chain.hpp"
#include "sampling/token_counts.hpp"

namespace pagewheel {
namespace {

/// Divides positive values by the penalty and multiplies the others by it, once for each token in
/// prompt and generation. What is finite stays finite; what is banned stays banned.
class RepetitionPenalty final : public ForkedByCopy<RepetitionPenalty> {
public:
    explicit RepetitionPenalty(float penalty) : m_penalty(penalty) {}
    void process(const LogitsRow& row, const TokenHistory& history) override {
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

private:
    double m_penalty;
    TokenCounts m_seen;
};

}  // namespace

std::unique_ptr<LogitsProcessor> make_repetition_penalty(const GenerationConfig& config) {
    if (config.repetition_penalty == 1.0f) return nullptr;
    return std::make_unique<RepetitionPenalty>(config.repetition_penalty);
}

}  // namespace pagewheel
