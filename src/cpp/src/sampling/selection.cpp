#include "sampling/selection.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/logits.hpp"
#include "sampling/best_tokens.hpp"

namespace pagewheel {

SampledToken GreedySelection::select(const float* logits, size_t n) {
    const size_t best = find_best_token(logits, n, m_isa);
    if (!m_wants_log_prob) return {int64_t(best), 0.0f};
    return {int64_t(best),
            float(-std::log(kernels::sum_exp(logits, n, logits[best], 1.0f, m_isa)))};
}

RandomSelection::RandomSelection(const GenerationConfig& config, uint64_t seed, Isa isa)
    : m_isa(isa),
      m_scale(
          std::min(1.0 / double(config.temperature), double(std::numeric_limits<float>::max()))),
      m_random(seed),
      m_shortlist(config, m_scale, isa) {}

SampledToken RandomSelection::select(const float* logits, size_t n) {
    if (m_shortlist.keeps_all(n)) return select_from_all(logits, n);
    m_shortlist.fill(logits, n);
    return select_from_shortlist();
}

double RandomSelection::draw_point() {
    return std::uniform_real_distribution<double>(0.0, m_sums.back())(m_random);
}

size_t RandomSelection::first_above(double point) const {
    return size_t(std::upper_bound(m_sums.begin(), m_sums.end() - 1, point) - m_sums.begin());
}

SampledToken RandomSelection::select_from_shortlist() {
    m_sums.clear();
    double total = 0;
    for (const double weight : m_shortlist.weights()) m_sums.push_back(total += weight);
    const size_t chosen = first_above(draw_point());
    return {m_shortlist.tokens()[chosen].id,
            float(std::log(m_shortlist.weights()[chosen] / total))};
}

SampledToken RandomSelection::select_from_all(const float* logits, size_t n) {
    // Sums of runs first, then one run value by value: no sorting, one vectorised pass.
    constexpr size_t run = 1024;
    const float best = logits[find_best_token(logits, n, m_isa)];
    const auto scale = float(m_scale);
    m_sums.clear();
    double total = 0;
    for (size_t i = 0; i < n; i += run)
        m_sums.push_back(total +=
                         kernels::sum_exp(logits + i, std::min(run, n - i), best, scale, m_isa));

    const double point = draw_point();
    const size_t chosen_run = first_above(point);
    double sum = chosen_run == 0 ? 0.0 : m_sums[chosen_run - 1];
    const size_t end = std::min((chosen_run + 1) * run, n);
    size_t chosen = chosen_run * run +
                    kernels::argmax(logits + chosen_run * run, end - chosen_run * run, m_isa);
    for (size_t i = chosen_run * run; i < end; ++i) {
        sum += kernels::sum_exp_scalar(logits + i, 1, best, scale);
        if (sum <= point) continue;
        chosen = i;
        break;
    }
    const double log_prob = double(logits[chosen] - best) * m_scale - std::log(total);
    return {int64_t(chosen), float(log_prob)};
}

}  // namespace pagewheel
