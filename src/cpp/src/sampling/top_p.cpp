// The fewest whose probabilities reach p in sum: nucleus sampling (Holtzman et al. 2020).
#include "sampling/candidate_filters.hpp"

namespace pagewheel {

std::unique_ptr<CandidateFilter> make_top_p(const GenerationConfig& config) {
    const auto p = double(config.top_p);
    if (p >= 1) return nullptr;
    return make_filter([p](Candidates& candidates) { candidates.keep_nucleus(p); });
}

}  // namespace pagewheel
