// The k best.
#include <algorithm>

#include "sampling/candidate_filters.hpp"

namespace pagewheel {

std::optional<CandidateFilter> make_top_k(const GenerationConfig& config) {
    const size_t k = config.top_k;
    if (k == 0 || k == GenerationConfig::unlimited) return {};
    CandidateFilter filter;
    filter.keep = [k](const Candidates& candidates) { return std::min(k, candidates.size); };
    filter.bound.count = filter.keeps_all_of = k;
    return filter;
}

}  // namespace pagewheel
