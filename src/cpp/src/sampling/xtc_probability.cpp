// Leaves out the top choices now and then (XTC, p-e-w 2024), as llama.cpp has it.
#include "sampling/candidate_filters.hpp"

namespace pagewheel {
namespace {

/// With the probability, all tokens of at least the threshold but the least of them. Of equals the
/// one with the highest id is the least.
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

}  // namespace

std::unique_ptr<CandidateFilter> make_xtc_probability(const GenerationConfig& config) {
    if (config.xtc_probability <= 0) return nullptr;
    return std::make_unique<Xtc>(double(config.xtc_probability), double(config.xtc_threshold));
}

}  // namespace pagewheel
