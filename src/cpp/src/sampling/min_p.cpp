// Those that are at least p times as probable as the best (Nguyen et al. 2024).
#include "sampling/candidate_filters.hpp"

namespace pagewheel {

std::unique_ptr<CandidateFilter> make_min_p(const GenerationConfig& config) {
    const auto p = double(config.min_p);
    if (p <= 0) return nullptr;
    return make_filter(
        [p](Candidates& candidates) { candidates.keep_from(candidates.logit_below_best(p)); });
}

}  // namespace pagewheel
