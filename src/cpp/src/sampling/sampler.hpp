// Logits to tokens.
#pragma once

#include <cstdint>
#include <random>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "kernels/isa.hpp"
#include "pagewheel/generation_config.hpp"
#include "sampling/best_tokens.hpp"

namespace pagewheel {

struct SampledToken {
    int64_t id = 0;
    float log_prob = 0.0f;  ///< under the distribution that was sampled from; 0 unless logprobs
};

/// Picks the tokens of one sequence. The order is transformers': penalties, temperature, top_k,
/// top_p, min_p; then one draw.
class Sampler {
public:
    /// `prompt` counts for the repetition penalty only. A seeded request gives its sequence `index`
    /// the stream seed + index.
    Sampler(const GenerationConfig& config, const std::vector<int64_t>& prompt, size_t index,
            Isa isa);

    /// `logits` has n entries; they are changed in place where penalties or min_new_tokens ask for
    /// it. Throws LogitsError.
    SampledToken sample(float* logits, size_t n);

private:
    void apply_penalties(float* logits, size_t n) const;
    SampledToken pick_best(const float* logits, size_t n) const;
    SampledToken draw(const float* logits, size_t n);
    SampledToken draw_from_all(const float* logits, size_t n);
    /// Fills m_candidates, best first, with the tokens that top_k, top_p and min_p keep.
    void filter(const float* logits, size_t n);
    /// Length of the shortest prefix of m_candidates whose weights reach `wanted`.
    size_t nucleus_length(double wanted) const;
    /// exp((logit - best logit) / temperature): a probability but for its normalisation.
    double weight(const TokenLogit& candidate) const;

    GenerationConfig m_config;
    Isa m_isa;
    double m_scale;  // 1 / temperature, as much as a float holds
    std::mt19937_64 m_random;
    size_t m_num_generated = 0;
    std::unordered_map<int64_t, size_t> m_counts;  // occurrences among generated tokens
    std::unordered_set<int64_t> m_seen;    // in prompt and generation; for the repetition penalty
    std::vector<TokenLogit> m_candidates;  // kept for its memory, as the next
    std::vector<double> m_sums;
};

}  // namespace pagewheel
