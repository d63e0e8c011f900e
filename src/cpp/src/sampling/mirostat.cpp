// Text of a steady surprise: Mirostat 2 (Basu et al. 2021), as llama.cpp has it.
#include <cmath>

#include "sampling/candidate_filters.hpp"

namespace pagewheel {
namespace {

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

std::unique_ptr<CandidateFilter> make_mirostat(const GenerationConfig& config) {
    if (config.mirostat == 0) return nullptr;
    return std::make_unique<Mirostat2>(double(config.mirostat_tau), double(config.mirostat_eta));
}

}  // namespace pagewheel
