// Those whose information is nearest to what is expected: locally typical sampling (Meister et al.
// 2022), as transformers' TypicalLogitsWarper has it.
#include "sampling/candidate_filters.hpp"

namespace pagewheel {

/// Of the tokens by |-log p - entropy|, least first, the fewest whose probabilities reach typical_p
/// in sum; and all that equal the last of them. The best token may be left out.
std::unique_ptr<CandidateFilter> make_typical_p(const GenerationConfig& config) {
    const auto p = double(config.typical_p);
    if (p >= 1) return nullptr;
    return make_filter([p](Candidates& candidates) {
        // The entropy is the mean of -log p, and -log p falls with the logit, in a straight line:
        // it is nearest to its mean where the logit is.
        candidates.keep_nearest(candidates.mean_logit(), p);
    });
}

}  // namespace pagewheel
