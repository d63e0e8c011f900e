// The choice of a token by its logits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/isa.hpp"
#include "pagewheel/generation_config.hpp"
#include "sampling/candidate_filter.hpp"
#include "sampling/temperature.hpp"

namespace pagewheel {

struct SampledToken {
    int64_t id = 0;
    float log_prob =
        0.0f;  ///< under the distribution that was drawn from; of greedy, 0 unless logprobs
};

/// Of one sequence, a token per call. Beam search, which chooses among sequences, is not one
/// (beam_search.hpp).
class Selection {
public:
    virtual ~Selection() = default;
    /// For the generated token `position`, which the sequence keeps. Throws LogitsError.
    virtual SampledToken select(const float* logits, size_t n, size_t position) = 0;
};

/// The best token, the lowest id of equals.
class GreedySelection final : public Selection {
public:
    GreedySelection(const GenerationConfig& config, Isa isa)
        : m_wants_log_prob(config.logprobs > 0), m_isa(isa) {}
    SampledToken select(const float* logits, size_t n, size_t position) override;

private:
    bool m_wants_log_prob;
    Isa m_isa;
};

/// A random token by its probability under the temperature, of those that the filters leave.
class RandomSelection final : public Selection {
public:
    /// Of a request's sequence `index`. Without a seed it is the operating system's. The config's
    /// rng_seed is not looked at.
    RandomSelection(const GenerationConfig& config, std::optional<uint64_t> seed, size_t index,
                    Isa isa);
    SampledToken select(const float* logits, size_t n, size_t position) override;

private:
    Temperature m_temperature;
    uint64_t m_seed;
    size_t m_index;
    Isa m_isa;
    std::vector<std::unique_ptr<CandidateFilter>> m_filters;
};

/// As the config asks, but with this seed, for a request's sequence `index`.
std::unique_ptr<Selection> make_selection(const GenerationConfig& config,
                                          std::optional<uint64_t> seed, size_t index, Isa isa);

}  // namespace pagewheel
