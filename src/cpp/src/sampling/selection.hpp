// The choice of a token by its logits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/isa.hpp"
#include "pagewheel/generation_config.hpp"
#include "sampling/shortlist.hpp"

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
    /// Throws LogitsError.
    virtual SampledToken select(const float* logits, size_t n) = 0;
};

/// The best token, the lowest id of equals.
class GreedySelection final : public Selection {
public:
    GreedySelection(const GenerationConfig& config, Isa isa)
        : m_wants_log_prob(config.logprobs > 0), m_isa(isa) {}
    SampledToken select(const float* logits, size_t n) override;

private:
    bool m_wants_log_prob;
    Isa m_isa;
};

/// A random token by its probability under the temperature, of those that the filters leave.
class RandomSelection final : public Selection {
public:
    RandomSelection(const GenerationConfig& config, uint64_t seed, Isa isa);
    SampledToken select(const float* logits, size_t n) override;

private:
    SampledToken select_from_all(const float* logits, size_t n);
    SampledToken select_from_shortlist();
    /// Of what m_sums adds up to. The one use of randomness, once per token.
    double draw_point();
    /// Index in m_sums of the first that is greater.
    size_t first_above(double point) const;

    Isa m_isa;
    double m_scale;  // 1 / temperature, as much as a float holds
    std::mt19937_64 m_random;
    Shortlist m_shortlist;
    std::vector<double> m_sums;  // of weights, running; kept for its memory
};

}  // namespace pagewheel
