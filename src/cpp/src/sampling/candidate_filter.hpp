// What leaves out tokens before one of the rest is drawn.
#pragma once

#include <cstddef>
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
class CandidateFilter {
public:
    virtual ~CandidateFilter() = default;
    /// How many of the candidates stay, from the best on. Whether one stays may depend on those
    /// before it and on the total, not on those after it, which may not be listed. The best always
    /// stays.
    virtual size_t keep(const Candidates& candidates) const = 0;
    /// Bounds save sorting; without them the result is the same.
    virtual CandidateBound bound() const { return {}; }
    virtual bool needs_total() const { return false; }
    /// Of n tokens it leaves out none, whatever they weigh.
    virtual bool keeps_all(size_t /*n*/) const { return false; }
};

}  // namespace pagewheel
