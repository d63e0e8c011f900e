// What leaves out tokens before one of the rest is drawn.
#pragma once

#include <memory>
#include <utility>

#include "sampling/candidates.hpp"
#include "sampling/token_random.hpp"

namespace pagewheel {

/// Serves one sequence. Each belongs to a parameter of generation_parameters.def.
class CandidateFilter {
public:
    virtual ~CandidateFilter() = default;
    /// Leaves at least one of what those before it left, which is all that there is for it:
    /// probabilities are shares of that.
    virtual void apply(Candidates& candidates, const TokenRandom& random) = 0;
    /// The token that was drawn, and is kept, had this log-probability among what was left.
    virtual void observe(double /*log_prob*/) {}
};

/// A filter that is a function of the candidates and what it captures.
template <class Function>
class FunctionFilter final : public CandidateFilter {
public:
    explicit FunctionFilter(Function function) : m_function(std::move(function)) {}
    void apply(Candidates& candidates, const TokenRandom&) override { m_function(candidates); }

private:
    Function m_function;
};

template <class Function>
std::unique_ptr<CandidateFilter> make_filter(Function function) {
    return std::make_unique<FunctionFilter<Function>>(std::move(function));
}

}  // namespace pagewheel
