#include "sampling/best_tokens.hpp"

#include <algorithm>
#include <cmath>

#include "base/check.hpp"
#include "kernels/logits.hpp"

namespace pagewheel {

void throw_all_banned() {
    throw NoTokenLeft(
        "no token can be chosen: all logits are minus infinity, as the model computed them or by "
        "the request's bans (allowed_token_ids, suppress_tokens, bad_words, no_repeat_ngram_size, "
        "min_new_tokens and logits_processors)");
}

size_t find_best_token(const float* logits, size_t n, Isa isa) {
    const size_t best = kernels::argmax(logits, n, isa);
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
    while (i < n && (i = kernels::find_above(logits, i, n, best.front().logit, isa)) < n) {
        std::pop_heap(best.begin(), best.end(), better);
        best.back() = {logits[i], int64_t(i)};
        std::push_heap(best.begin(), best.end(), better);
        ++i;
    }
    std::sort_heap(best.begin(), best.end(), better);
}

}  // namespace pagewheel
