#include "sampling/candidate_filters.hpp"

#include <cmath>

namespace pagewheel {

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
    constexpr uint64_t multipliers[] = {0xD2511F53, 0xCD9E8D57};
    constexpr uint32_t increments[] = {0x9E3779B9, 0xBB67AE85};  // golden ratio, sqrt(3) - 1
    for (int round = 0; round < 10; ++round) {
        const uint64_t a = multipliers[0] * counter[0], b = multipliers[1] * counter[2];
        counter = {uint32_t(b >> 32) ^ counter[1] ^ key[0], uint32_t(b),
                   uint32_t(a >> 32) ^ counter[3] ^ key[1], uint32_t(a)};
        for (size_t i = 0; i < 2; ++i) key[i] += increments[i];
    }
    return counter;
}

double TokenRandom::uniform(Draw draw) const {
    // Two numbers to a block, 53 bits of two words each.
    const auto number = uint32_t(draw);
    const auto words = philox({uint32_t(m_position), uint32_t(m_index), number / 2, 0},
                              {uint32_t(m_seed), uint32_t(m_seed >> 32)});
    const size_t first = number % 2 * 2;
    const uint64_t bits = (uint64_t(words[first]) << 32) | words[first + 1];
    return double(bits >> 11) * 0x1p-53;
}

namespace {

/// Leaves out the top choices now and then (XTC, p-e-w 2024), as llama.cpp does: with the
/// probability, all tokens of at least the threshold but the least of them. Of equals the one with
/// the highest id is the least.
class Xtc final : public CandidateFilter {
public:
    Xtc(double probability, double threshold)
        : m_probability(probability), m_threshold(threshold) {}

    void apply(Candidates& candidates, const TokenRandom& random) override {
        if (random.uniform(Draw::XTC) < m_probability)
            candidates.leave_out_best_down_to(candidates.logit_of(m_threshold));
    }

private:
    double m_probability, m_threshold;
};

/// Keeps the surprise of the text steady: Mirostat 2 (Basu et al. 2021), as llama.cpp has it.
///
/// Leaves out tokens whose surprise, -log2 of the probability, exceeds mu. After each token mu
/// moves by eta times what the token's surprise among the rest was short of tau.
class Mirostat2 final : public CandidateFilter {
public:
    Mirostat2(double tau, double eta) : m_tau(tau), m_eta(eta), m_mu(2 * tau) {}

    void apply(Candidates& candidates, const TokenRandom&) override {
        const double least = candidates.logit_of(std::exp2(-m_mu));
        if (least > candidates.best())
            candidates.keep_best(1);  // not all that equal it
        else
            candidates.keep_from(least);
    }
    void observe(double log_prob) override {
        constexpr double bits_of_e = 1.4426950408889634;
        m_mu -= m_eta * (-log_prob * bits_of_e - m_tau);
    }

private:
    double m_tau, m_eta, m_mu;
};

}  // namespace

// ---- The filters, by their parameters. Each gives nullptr where the config does not ask for it.

/// Keeps the k best tokens.
FilterPtr make_top_k(const GenerationConfig& config) {
    const size_t k = config.top_k;
    if (k == 0 || k == GenerationConfig::unlimited) return nullptr;
    return make_filter([k](Candidates& candidates) { candidates.keep_best(k); });
}

/// Keeps the fewest tokens whose probabilities reach p in sum: nucleus sampling (Holtzman et al.
/// 2020).
FilterPtr make_top_p(const GenerationConfig& config) {
    const auto p = double(config.top_p);
    if (p >= 1) return nullptr;
    return make_filter([p](Candidates& candidates) { candidates.keep_nucleus(p); });
}

/// Keeps tokens that are at least p times as probable as the best (Nguyen et al. 2024).
FilterPtr make_min_p(const GenerationConfig& config) {
    const auto p = double(config.min_p);
    if (p <= 0) return nullptr;
    return make_filter(
        [p](Candidates& candidates) { candidates.keep_from(candidates.logit_below_best(p)); });
}

/// Keeps tokens within n standard deviations of the best logit (Tang et al. 2024, "Top-n sigma"),
/// as llama.cpp has it: tokens whose logit is minus infinity do not count.
FilterPtr make_top_n_sigma(const GenerationConfig& config) {
    const auto n = double(config.top_n_sigma);
    if (n <= 0) return nullptr;
    return make_filter([n](Candidates& candidates) {
        // Temperature divides both, the distance from the best and the deviation.
        candidates.keep_from(candidates.best() - n * candidates.deviation());
    });
}

/// Locally typical sampling (Meister et al. 2022), as transformers' TypicalLogitsWarper has it.
/// Orders tokens by |-log p - entropy|, least first, and keeps the fewest whose probabilities reach
/// typical_p in sum, with all that equal the last of them. The best token may be left out.
FilterPtr make_typical_p(const GenerationConfig& config) {
    const auto p = double(config.typical_p);
    if (p >= 1) return nullptr;
    return make_filter([p](Candidates& candidates) {
        // The entropy is the mean of -log p, and -log p falls with the logit, in a straight line:
        // it is nearest to its mean where the logit is.
        candidates.keep_nearest(candidates.mean_logit(), p);
    });
}

FilterPtr make_xtc_probability(const GenerationConfig& config) {
    if (config.xtc_probability <= 0) return nullptr;
    return std::make_unique<Xtc>(double(config.xtc_probability), double(config.xtc_threshold));
}

FilterPtr make_mirostat(const GenerationConfig& config) {
    if (config.mirostat == 0) return nullptr;
    return std::make_unique<Mirostat2>(double(config.mirostat_tau), double(config.mirostat_eta));
}

const std::vector<FilterKind>& candidate_filters() {
    static const std::vector<FilterKind> table{
#define PAGEWHEEL_PARAMETER(type, name, initial, condition, allowed, help)
#define PAGEWHEEL_PROCESSOR PAGEWHEEL_PARAMETER
#define PAGEWHEEL_FILTER(type, name, initial, condition, allowed, help) {#name, &make_##name},
#include "pagewheel/generation_parameters.def"
    };
    return table;
}

}  // namespace pagewheel
