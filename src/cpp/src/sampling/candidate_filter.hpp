// What leaves out tokens before one of the rest is drawn.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>

namespace pagewheel {

/// Tokens to draw from, best first.
struct Candidates {
    const double* weights;  ///< [size]: exp((logit - best logit) / temperature)
    size_t size;
    /// Sum of all candidates' weights, of those too that are not listed because others before them
    /// suffice. 0 unless a filter needs it.
    double total;
};

/// What is known before any token is sorted.
struct CandidateBound {
    size_t count = std::numeric_limits<size_t>::max();  ///< No more than these stay,
    float weight = 0.0f;                                ///< and none that weighs less.
};

/// Each belongs to a parameter of generation_parameters.def.
struct CandidateFilter {
    /// How many of the candidates stay, from the best on. Whether one stays may depend on those
    /// before it and on the total, not on those after it, which may not be listed. The best always
    /// stays.
    std::function<size_t(const Candidates&)> keep;
    /// Bounds save sorting; without them the result is the same.
    CandidateBound bound = {};
    bool needs_total = false;
    /// Of so many tokens it leaves out none, whatever they weigh.
    size_t keeps_all_of = 0;
};

}  // namespace pagewheel
