// The k best.
#include "sampling/candidate_filters.hpp"

namespace pagewheel {

std::unique_ptr<CandidateFilter> make_top_k(const GenerationConfig& config) {
    const size_t k = config.top_k;
    if (k == 0 || k == GenerationConfig::unlimited) return nullptr;
    return make_filter([k](Candidates& candidates) { candidates.keep_best(k); });
}

}  // namespace pagewheel
