#include "sampling/log_probs.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.hpp"
#include "kernels/logits.hpp"

namespace pagewheel {

void throw_all_banned() {
    throw NoTokenLeft(
        "no token can be chosen: all logits are minus infinity, as the model computed them or by "
        "the request's bans (allowed_token_ids, suppress_tokens, bad_words and others) and "
        "logits_processors");
}

size_t find_best_token(const float* logits, size_t n, Isa isa) {
    const size_t best = kernels::logits_kernels(isa).argmax(logits, n);
    if (std::isfinite(logits[best])) return best;
    if (logits[best] < 0) throw_all_banned();
    throw LogitsError(concat("the model computed a logit of ", logits[best], " for token ", best,
                             ": weights or activations are no finite numbers"));
}

void find_best_tokens(const float* logits, size_t n, size_t k, float weakest, Isa isa,
                      std::vector<TokenLogit>& best) {
    const auto better = [](const TokenLogit& a, const TokenLogit& b) {
        return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
    };
    // A heap of the best k with the worst on top: most of a vocabulary fails one comparison.
    best.clear();
    if (k == 0) return;
    size_t i = 0;
    for (; i < n && best.size() < k; ++i)
        if (logits[i] >= weakest) best.push_back({logits[i], int64_t(i)});
    std::make_heap(best.begin(), best.end(), better);
    // What equals the worst comes after it, and is no better.
    while (i < n &&
           (i = kernels::logits_kernels(isa).find_above(logits, i, n, best.front().logit)) < n) {
        std::pop_heap(best.begin(), best.end(), better);
        best.back() = {logits[i], int64_t(i)};
        std::push_heap(best.begin(), best.end(), better);
        ++i;
    }
    std::sort_heap(best.begin(), best.end(), better);
}

LogProbs::LogProbs(const float* logits, size_t n, Isa isa)
    : m_logits(logits), m_size(n), m_isa(isa) {
    const size_t best = find_best_token(logits, n, isa);
    const float logit = logits[best];
    m_best = {{logit, int64_t(best)}};
    m_log_total =
        double(logit) + std::log(kernels::logits_kernels(isa).sum_exp(logits, n, logit, 1.0f));
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
