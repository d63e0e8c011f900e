// What leaves out tokens before one of the rest is drawn, as a GenerationConfig asks for it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pagewheel/generation_config.hpp"
#include "sampling/candidates.hpp"

namespace pagewheel {

/// Philox 4x32 with 10 rounds (Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy
/// as 1, 2, 3"): counters and keys to words that are as good as random.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// What numbers are drawn for. Each gives another number.
enum class Draw { TOKEN, XTC };

/// The random numbers of one token of one sequence. They depend on nothing but seed, sequence and
/// position: neither on what was drawn before, nor on what is computed beside it.
class TokenRandom {
public:
    /// The generated token `position` of a request's sequence `index`, both below 2^32.
    TokenRandom(uint64_t seed, size_t index, size_t position)
        : m_seed(seed), m_index(index), m_position(position) {}

    /// A number of at least 0 and less than 1, a multiple of 2^-53.
    double uniform(Draw draw) const;

private:
    uint64_t m_seed;
    size_t m_index, m_position;
};

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

using FilterPtr = std::unique_ptr<CandidateFilter>;

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
FilterPtr make_filter(Function function) {
    return std::make_unique<FunctionFilter<Function>>(std::move(function));
}

// make_<name>(config) for each filter in the table of parameters.
#define PAGEWHEEL_PARAMETER(type, name, initial, condition, allowed, help)
#define PAGEWHEEL_PROCESSOR PAGEWHEEL_PARAMETER
#define PAGEWHEEL_FILTER(type, name, initial, condition, allowed, help) \
    FilterPtr make_##name(const GenerationConfig& config);
#include "pagewheel/generation_parameters.def"

struct FilterKind {
    std::string parameter;  ///< of GenerationConfig
    FilterPtr (*make)(const GenerationConfig&);
};

/// All there are, in the order in which they are applied.
const std::vector<FilterKind>& candidate_filters();

}  // namespace pagewheel
