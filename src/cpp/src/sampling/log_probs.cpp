#include "sampling/log_probs.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/logits.hpp"

namespace pagewheel {

LogProbs::LogProbs(const float* logits, size_t n, Isa isa)
    : m_logits(logits), m_size(n), m_isa(isa) {
    const size_t best = find_best_token(logits, n, isa);
    const float logit = logits[best];
    m_best = {{logit, int64_t(best)}};
    m_log_total = double(logit) + std::log(kernels::sum_exp(logits, n, logit, 1.0f, isa));
}

void LogProbs::find_top(size_t count, int64_t chosen, std::vector<TokenLogProb>& top) {
    if (count > 1)
        find_best_tokens(m_logits, m_size, std::min(count, m_size),
                         std::numeric_limits<float>::lowest(), m_isa, m_best);
    for (TokenLogit& token : m_best) token.logit = of(token.id);
    top = top_log_probs(m_best, count, {of(chosen), chosen});
}

std::vector<TokenLogProb> top_log_probs(const std::vector<TokenLogit>& best, size_t count,
                                        const TokenLogit& chosen) {
    std::vector<TokenLogProb> top;
    bool has_chosen = false;
    for (size_t i = 0; i < std::min(count, best.size()); ++i) {
        top.push_back({best[i].id, best[i].logit, {}});
        has_chosen |= best[i].id == chosen.id;
    }
    if (!has_chosen) top.push_back({chosen.id, chosen.logit, {}});
    return top;
}

}  // namespace pagewheel
