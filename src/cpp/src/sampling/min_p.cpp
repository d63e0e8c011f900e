// Those that are at least p times as probable as the best (Nguyen et al. 2024).
#include "sampling/candidate_filters.hpp"

namespace pagewheel {

std::optional<CandidateFilter> make_min_p(const GenerationConfig& config) {
    const float p = config.min_p;
    if (p <= 0.0f) return {};
    CandidateFilter filter;
    filter.bound.weight = p;
    filter.keep = [p](const Candidates& candidates) {
        size_t length = candidates.size;
        while (length > 1 && candidates.weights[length - 1] < p) --length;
        return length;
    };
    return filter;
}

}  // namespace pagewheel
