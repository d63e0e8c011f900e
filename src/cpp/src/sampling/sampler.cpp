#include "sampling/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/logits.hpp"

namespace pagewheel {
namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();
constexpr float most = std::numeric_limits<float>::max();

uint64_t seed_of(const GenerationConfig& config, size_t index) {
    if (config.rng_seed) return *config.rng_seed + index;
    std::random_device device;
    return (uint64_t(device()) << 32) | device();
}

}  // namespace

Sampler::Sampler(const GenerationConfig& config, const std::vector<int64_t>& prompt, size_t index,
                 Isa isa)
    : m_config(config),
      m_isa(isa),
      m_scale(std::min(1.0 / double(config.temperature), double(most))),
      m_random(config.do_sample ? seed_of(config, index) : 0) {
    if (config.repetition_penalty == 1.0f) return;
    m_seen.insert(prompt.begin(), prompt.end());
}

SampledToken Sampler::sample(float* logits, size_t n) {
    apply_penalties(logits, n);
    const SampledToken token = m_config.do_sample ? draw(logits, n) : pick_best(logits, n);
    ++m_num_generated;
    if (m_config.presence_penalty != 0.0f || m_config.frequency_penalty != 0.0f)
        ++m_counts[token.id];
    if (m_config.repetition_penalty != 1.0f) m_seen.insert(token.id);
    return token;
}

void Sampler::apply_penalties(float* logits, size_t n) const {
    for (int64_t id : m_seen) {
        if (size_t(id) >= n) continue;
        float& logit = logits[id];
        if (!std::isfinite(logit)) continue;
        const float penalty = m_config.repetition_penalty;
        logit = std::clamp(logit > 0 ? logit / penalty : logit * penalty, -most, most);
    }
    for (const auto& [id, count] : m_counts)
        logits[id] -= m_config.presence_penalty + m_config.frequency_penalty * float(count);
    if (m_num_generated >= m_config.min_new_tokens) return;
    if (size_t(m_config.eos_token_id) < n) logits[m_config.eos_token_id] = minus_infinity;
    for (int64_t id : m_config.stop_token_ids)
        if (size_t(id) < n) logits[id] = minus_infinity;
}

SampledToken Sampler::pick_best(const float* logits, size_t n) const {
    const size_t best = find_best_token(logits, n, m_isa);
    if (m_config.logprobs == 0) return {int64_t(best), 0.0f};
    return {int64_t(best),
            float(-std::log(kernels::sum_exp(logits, n, logits[best], 1.0f, m_isa)))};
}

double Sampler::weight(const TokenLogit& candidate) const {
    return std::exp(double(candidate.logit - m_candidates.front().logit) * m_scale);
}

SampledToken Sampler::draw(const float* logits, size_t n) {
    const bool all = m_config.top_k == 0 || m_config.top_k >= n;
    if (all && m_config.top_p >= 1.0f && m_config.min_p <= 0.0f) return draw_from_all(logits, n);

    filter(logits, n);
    m_sums.clear();
    double total = 0;
    for (const TokenLogit& candidate : m_candidates) m_sums.push_back(total += weight(candidate));
    const double point = std::uniform_real_distribution<double>(0.0, total)(m_random);
    const auto sum = std::upper_bound(m_sums.begin(), m_sums.end() - 1, point);
    const TokenLogit& chosen = m_candidates[sum - m_sums.begin()];
    return {chosen.id, m_config.logprobs ? float(std::log(weight(chosen) / total)) : 0.0f};
}

SampledToken Sampler::draw_from_all(const float* logits, size_t n) {
    // Sums of runs first, then one run value by value: no sorting, one vectorised pass.
    constexpr size_t run = 1024;
    const float best = logits[find_best_token(logits, n, m_isa)];
    const auto scale = float(m_scale);
    m_sums.clear();
    double total = 0;
    for (size_t i = 0; i < n; i += run)
        m_sums.push_back(total +=
                         kernels::sum_exp(logits + i, std::min(run, n - i), best, scale, m_isa));

    const double point = std::uniform_real_distribution<double>(0.0, total)(m_random);
    const size_t chosen_run =
        std::upper_bound(m_sums.begin(), m_sums.end() - 1, point) - m_sums.begin();
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
    return {int64_t(chosen), m_config.logprobs ? float(log_prob) : 0.0f};
}

void Sampler::filter(const float* logits, size_t n) {
    const size_t k = m_config.top_k == 0 ? n : std::min(m_config.top_k, n);
    const float best = logits[find_best_token(logits, n, m_isa)];
    // What min_p will drop need not be sorted; weight() below decides about those near the limit.
    const float limit = best + (std::log(m_config.min_p) - 1e-3f) * m_config.temperature;
    const float weakest = limit <= best ? limit : minus_infinity;  // NaN of extreme parameters
    size_t keep = 0;
    if (m_config.top_p >= 1.0f) {
        find_best_tokens(logits, n, k, weakest, m_isa, m_candidates);
        keep = m_candidates.size();
    } else if (k < n) {
        // top_p counts what min_p drops after it.
        find_best_tokens(logits, n, k, minus_infinity, m_isa, m_candidates);
        double total = 0;
        for (const TokenLogit& candidate : m_candidates) total += weight(candidate);
        keep = nucleus_length(m_config.top_p * total);
    } else {
        // A nucleus is nearly always small: sort the best few, and more only if they do not reach
        // it.
        const double wanted =
            m_config.top_p * kernels::sum_exp(logits, n, best, float(m_scale), m_isa);
        for (size_t guess = 64;; guess *= 8) {
            find_best_tokens(logits, n, std::min(guess, n), weakest, m_isa, m_candidates);
            keep = nucleus_length(wanted);
            if (keep < m_candidates.size() || m_candidates.size() < guess) break;
        }
    }
    while (keep > 1 && weight(m_candidates[keep - 1]) < m_config.min_p) --keep;
    m_candidates.resize(std::max<size_t>(keep, 1));
}

size_t Sampler::nucleus_length(double wanted) const {
    double sum = 0;
    size_t length = 0;
    while (length < m_candidates.size() && sum < wanted) sum += weight(m_candidates[length++]);
    return length;
}

}  // namespace pagewheel
