// What filters leave of a row of logits, from their definitions: sorted, in double.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "pagewheel/generation_config.hpp"

namespace pagewheel {

/// A distribution over a row's tokens, which filters narrow in turn.
class SamplingReference {
public:
    /// `bias` moves every limit by so much of it: what differs with it is a matter of rounding.
    explicit SamplingReference(const std::vector<float>& logits, double bias = 0)
        : m_logits(logits.begin(), logits.end()), m_bias(1 + bias), m_order(logits.size()) {
        std::iota(m_order.begin(), m_order.end(), size_t(0));
        std::stable_sort(m_order.begin(), m_order.end(),
                         [&](size_t a, size_t b) { return m_logits[a] > m_logits[b]; });
        while (!std::isfinite(m_logits[m_order.back()])) m_order.pop_back();
    }

    /// All filters of a config. `xtc_happens` for its draw, `mu` of mirostat.
    SamplingReference& apply(const GenerationConfig& config, bool xtc_happens, double mu) {
        divide_by(temperature(config));
        if (config.top_n_sigma > 0) top_n_sigma(double(config.top_n_sigma));
        if (config.top_k > 0) m_order.resize(std::min(m_order.size(), config.top_k));
        if (config.top_p < 1) top_p(double(config.top_p));
        if (config.min_p > 0) min_p(double(config.min_p));
        if (config.typical_p < 1) typical_p(double(config.typical_p));
        if (xtc_happens) xtc(double(config.xtc_threshold));
        if (config.mirostat == 2) mirostat(mu);
        return *this;
    }

    /// Of every token of the row.
    std::vector<double> probabilities() const {
        std::vector<double> all(m_logits.size(), 0.0);
        const std::vector<double> p = probabilities_in_order();
        for (size_t i = 0; i < p.size(); ++i) all[m_order[i]] = p[i];
        return all;
    }
    /// Of the tokens that are left, ascending.
    std::vector<size_t> ids() const {
        std::vector<size_t> sorted = m_order;
        std::sort(sorted.begin(), sorted.end());
        return sorted;
    }

private:
    std::vector<double> probabilities_in_order() const {
        std::vector<double> p;
        const double best = m_logits[m_order.front()];
        for (size_t id : m_order) p.push_back(std::exp(m_logits[id] - best));
        const double total = std::accumulate(p.begin(), p.end(), 0.0);
        for (double& value : p) value /= total;
        return p;
    }
    double temperature(const GenerationConfig& config) const {
        if (config.dynatemp_range == 0 || m_logits.size() == 1) return double(config.temperature);
        double entropy = 0;
        for (const double p : probabilities_in_order())
            if (p > 0) entropy -= p * std::log(p);
        const double share = entropy / std::log(double(m_logits.size()));
        const auto middle = double(config.temperature), range = double(config.dynatemp_range);
        const double least = std::max(0.0, middle - range);
        return least + (middle + range - least) * std::pow(share, double(config.dynatemp_exponent));
    }
    void divide_by(double temperature) {
        temperature = std::max(temperature, 1e-30);  // a dynamic one may be 0
        for (double& logit : m_logits) logit /= temperature;
    }
    template <class Stays>
    void keep_if(const Stays& stays) {
        std::vector<size_t> kept;
        for (size_t i = 0; i < m_order.size(); ++i)
            if (stays(i)) kept.push_back(m_order[i]);
        m_order = std::move(kept);
    }

    void top_n_sigma(double n) {
        double mean = 0, variance = 0;
        for (size_t id : m_order) mean += m_logits[id] / double(m_order.size());
        for (size_t id : m_order)
            variance += std::pow(m_logits[id] - mean, 2) / double(m_order.size());
        const double best = m_logits[m_order.front()];
        keep_if([&](size_t i) {
            return m_logits[m_order[i]] >= best - n * std::sqrt(variance) * m_bias;
        });
    }
    void top_p(double wanted) {
        const std::vector<double> p = probabilities_in_order();
        double before = 0;
        keep_if([&](size_t i) {
            const bool stays = before < wanted * m_bias;
            before += p[i];
            return stays;
        });
    }
    void min_p(double least) {
        const std::vector<double> p = probabilities_in_order();
        keep_if([&](size_t i) { return p[i] >= least * m_bias * p[0]; });
    }
    void typical_p(double wanted) {
        const std::vector<double> p = probabilities_in_order();
        double entropy = 0;
        for (const double value : p)
            if (value > 0) entropy -= value * std::log(value);
        const double log_total = m_logits[m_order.front()] - std::log(p[0]);
        std::vector<double> distances;
        for (size_t id : m_order) distances.push_back(std::abs(log_total - m_logits[id] - entropy));
        std::vector<size_t> nearest(p.size());
        std::iota(nearest.begin(), nearest.end(), size_t(0));
        std::sort(nearest.begin(), nearest.end(),
                  [&](size_t a, size_t b) { return distances[a] < distances[b]; });
        double sum = 0, farthest = 0;
        for (size_t i : nearest) {
            if (sum >= wanted * m_bias) break;
            sum += p[i];
            farthest = distances[i];
        }
        // What a float's rounding makes the same distance.
        const double rounding = 1e-7 * std::abs(m_logits[m_order.front()]) + 1e-14;
        keep_if([&](size_t i) { return distances[i] <= farthest + rounding; });
    }
    void xtc(double threshold) {
        const std::vector<double> p = probabilities_in_order();
        size_t last = 0;
        while (last + 1 < p.size() && p[last + 1] >= threshold * m_bias) ++last;
        keep_if([&](size_t i) { return i >= last; });
    }
    void mirostat(double mu) {
        const std::vector<double> p = probabilities_in_order();
        keep_if([&](size_t i) { return i == 0 || -std::log2(p[i]) <= mu * m_bias; });
    }

    std::vector<double> m_logits;
    double m_bias;
    std::vector<size_t> m_order;  // those that are left, the best first
};

/// The probability of each token of a row, with XTC as often as it happens, and with Mirostat's
/// limit of a first token.
inline std::vector<double> expected_probabilities(const GenerationConfig& config,
                                                  const std::vector<float>& logits) {
    const double mu = 2 * double(config.mirostat_tau), xtc = double(config.xtc_probability);
    const auto with = SamplingReference(logits).apply(config, true, mu).probabilities();
    auto expected = SamplingReference(logits).apply(config, false, mu).probabilities();
    for (size_t id = 0; id < expected.size(); ++id) expected[id] += xtc * (with[id] - expected[id]);
    return expected;
}

/// The number of draws that a distribution is compared by. Under AddressSanitizer, where a draw
/// takes ten times as long, it is a tenth: every draw runs the same code, and the bound below
/// counts in deviations, which hold for any number.
inline constexpr size_t draws(size_t count) {
#if defined(__SANITIZE_ADDRESS__)
    return count / 10;
#else
    return count;
#endif
}

/// How far counts are from what the probabilities make expected, in deviations; tokens that are
/// expected less than 5 times count as one.
inline double chi_square_deviations(const std::vector<size_t>& counts,
                                    const std::vector<double>& p) {
    double draws = 0, statistic = 0, rare = 0, rare_count = 0, freedom = -1;
    for (const size_t count : counts) draws += double(count);
    const auto add = [&](double expected, double count) {
        statistic += (count - expected) * (count - expected) / expected;
        ++freedom;
    };
    for (size_t id = 0; id < p.size(); ++id) {
        if (p[id] == 0) {
            EXPECT_EQ(counts[id], 0u) << "token " << id << " is left out";
        } else if (p[id] * draws < 5) {
            rare += p[id] * draws;
            rare_count += double(counts[id]);
        } else {
            add(p[id] * draws, double(counts[id]));
        }
    }
    if (rare >= 5) add(rare, rare_count);
    return freedom < 1 ? 0 : (statistic - freedom) / std::sqrt(2 * freedom);
}

}  // namespace pagewheel
