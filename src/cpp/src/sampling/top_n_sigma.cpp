// Those within n standard deviations of the best logit (Tang et al. 2024, "Top-n sigma"), as
// llama.cpp has it: tokens whose logit is minus infinity do not count.
#include "sampling/candidate_filters.hpp"

namespace pagewheel {

std::unique_ptr<CandidateFilter> make_top_n_sigma(const GenerationConfig& config) {
    const auto n = double(config.top_n_sigma);
    if (n <= 0) return nullptr;
    return make_filter([n](Candidates& candidates) {
        // Temperature divides both, the distance from the best and the deviation.
        candidates.keep_from(candidates.best() - n * candidates.deviation());
    });
}

}  // namespace pagewheel
