#include "sampling/shortlist.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "check.hpp"
#include "kernels/logits.hpp"
#include "sampling/candidate_filters.hpp"

namespace pagewheel {
namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();
constexpr size_t first_length = 64;
constexpr size_t growth = 8;

}  // namespace

Shortlist::Shortlist(const GenerationConfig& config, double scale, Isa isa)
    : m_scale(scale), m_isa(isa) {
    for (const FilterKind& kind : candidate_filters()) {
        auto filter = kind.make(config);
        if (!filter) continue;
        m_filters.push_back(*std::move(filter));
        const CandidateBound bound = m_filters.back().bound;
        m_bound.count = std::min(m_bound.count, bound.count);
        m_bound.weight = std::max(m_bound.weight, bound.weight);
        if (!m_filters.back().needs_total) continue;
        check_invariant(!m_needs_total, "two filters need totals; fill() knows that of one");
        m_needs_total = true;
    }
}

bool Shortlist::keeps_all(size_t n) const {
    return std::all_of(m_filters.begin(), m_filters.end(),
                       [&](const auto& filter) { return filter.keeps_all_of >= n; });
}

void Shortlist::fill(const float* logits, size_t n) {
    const float best = logits[find_best_token(logits, n, m_isa)];
    if (m_bound.count < n || (m_bound.weight > 0 && !m_needs_total)) {
        // The bounds say how many to list. A total counts what weighs too little to stay, too.
        list(logits, n, std::min(m_bound.count, n),
             m_needs_total ? minus_infinity : weakest_logit(best));
        return apply_filters(listed_weight());
    }
    const double total =
        m_needs_total ? kernels::sum_exp(logits, n, best, float(m_scale), m_isa) : 0;
    // Few tokens stay nearly always: the best few first, and more only if all of those stay.
    for (size_t length = first_length;; length *= growth) {
        list(logits, n, std::min(length, n), weakest_logit(best));
        const size_t num_listed = m_tokens.size();
        apply_filters(total);
        if (m_tokens.size() < num_listed || num_listed < length) return;
    }
}

void Shortlist::list(const float* logits, size_t n, size_t count, float weakest) {
    find_best_tokens(logits, n, count, weakest, m_isa, m_tokens);
    m_weights.clear();
    for (const TokenLogit& token : m_tokens)
        m_weights.push_back(std::exp(double(token.logit - m_tokens.front().logit) * m_scale));
}

void Shortlist::apply_filters(double total) {
    for (const auto& filter : m_filters) {
        const size_t kept = filter.keep({m_weights.data(), m_weights.size(), total});
        if (kept >= m_tokens.size()) continue;
        m_tokens.resize(std::max<size_t>(kept, 1));
        m_weights.resize(m_tokens.size());
        total = listed_weight();
    }
}

float Shortlist::weakest_logit(float best) const {
    // A little lower, for rounding: the filters decide about those near the limit.
    const auto limit = float(best + (std::log(double(m_bound.weight)) - 1e-3) / m_scale);
    return limit <= best ? limit : minus_infinity;  // NaN of extreme parameters
}

double Shortlist::listed_weight() const {
    return std::accumulate(m_weights.begin(), m_weights.end(), 0.0);
}

}  // namespace pagewheel
