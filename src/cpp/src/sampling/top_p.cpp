// The fewest whose share of the total reaches p: nucleus sampling (Holtzman et al. 2020).
#include "sampling/candidate_filters.hpp"

namespace pagewheel {

std::optional<CandidateFilter> make_top_p(const GenerationConfig& config) {
    const float p = config.top_p;
    if (p >= 1.0f) return {};
    CandidateFilter filter;
    filter.needs_total = true;
    filter.keep = [p](const Candidates& candidates) {
        const double wanted = p * candidates.total;
        double sum = 0;
        size_t length = 0;
        while (length < candidates.size && sum < wanted) sum += candidates.weights[length++];
        return length;
    };
    return filter;
}

}  // namespace pagewheel
