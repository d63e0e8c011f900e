// The tokens that the filters of a config leave to draw from, found without sorting a vocabulary.
#pragma once

#include <vector>

#include "kernels/isa.hpp"
#include "pagewheel/generation_config.hpp"
#include "sampling/best_tokens.hpp"
#include "sampling/candidate_filter.hpp"

namespace pagewheel {

class Shortlist {
public:
    /// `scale` is 1 / temperature.
    Shortlist(const GenerationConfig& config, double scale, Isa isa);

    /// No filter leaves out any of n tokens: there is nothing to list.
    bool keeps_all(size_t n) const;
    /// Lists what the filters leave of logits [n]. Throws LogitsError.
    void fill(const float* logits, size_t n);

    /// Best first, at least one.
    const std::vector<TokenLogit>& tokens() const { return m_tokens; }
    /// Of each token, exp((logit - best logit) * scale).
    const std::vector<double>& weights() const { return m_weights; }

private:
    /// Lists the best `count` tokens that may stay by `weakest`.
    void list(const float* logits, size_t n, size_t count, float weakest);
    /// Lets the filters shorten the list. `total` is the weight of all tokens.
    void apply_filters(double total);
    float weakest_logit(float best) const;
    double listed_weight() const;

    double m_scale;
    Isa m_isa;
    std::vector<CandidateFilter> m_filters;
    CandidateBound m_bound;  // of all filters
    bool m_needs_total = false;
    std::vector<TokenLogit> m_tokens;
    std::vector<double> m_weights;
};

}  // namespace pagewheel
