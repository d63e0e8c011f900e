// The next token of a sequence that is not a beam.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/isa.hpp"
#include "pagewheel/generation_config.hpp"
#include "pagewheel/generation_handle.hpp"
#include "pagewheel/logits_processor.hpp"
#include "sampling/candidate_filters.hpp"
#include "sampling/candidates.hpp"
#include "sampling/logits_chain.hpp"

namespace pagewheel {

/// A config's temperature, which with dynatemp_range follows the entropy of the logits.
class Temperature {
public:
    explicit Temperature(const GenerationConfig& config);

    /// 1 / temperature, as much as a float holds.
    double inverse(const LogitsMaxima& row, Isa isa) const;

private:
    double dynamic(const LogitsMaxima& row, Isa isa) const;

    double m_middle, m_range, m_exponent;
};

struct SampledToken {
    int64_t id = 0;
    /// Its log-probability in the distribution that was drawn from; 0 of greedy decoding without
    /// logprobs.
    float log_prob = 0.0f;
};

/// Draws a random token by its probability under the temperature, of those that the filters leave.
class RandomSelection {
public:
    /// Draws for a request's sequence `index`. Without a seed the operating system's is taken. The
    /// config's rng_seed is not looked at.
    RandomSelection(const GenerationConfig& config, std::optional<uint64_t> seed, size_t index,
                    Isa isa);
    /// Chooses the generated token `position`, which the sequence keeps. Throws LogitsError.
    SampledToken select(const float* logits, size_t n, size_t position);

private:
    Temperature m_temperature;
    uint64_t m_seed;
    size_t m_index;
    Isa m_isa;
    std::vector<FilterPtr> m_filters;
};

/// What ends a sequence whose latest token is `token`. `is_full`: it may have no more tokens.
/// `stops_text()` says whether its text has a stop string. It is asked only if the config names
/// some, and nothing else stops the sequence.
template <class StopsText>
GenerationFinishReason finish_reason(const GenerationConfig& config, int64_t token, bool is_full,
                                     StopsText&& stops_text) {
    using Reason = GenerationFinishReason;
    if (!config.ignore_eos && config.is_stop_token(token)) return Reason::STOP;
    if (!config.stop_strings.empty() && stops_text()) return Reason::STOP;
    return is_full ? Reason::LENGTH : Reason::NONE;
}

/// Picks the tokens of one sequence: applies the chain of logits processors, then takes the best
/// token (the lowest id of equals), or with do_sample a random one. The order is that of
/// generation_parameters.def. Beam search, which chooses among sequences, is in beam_search.hpp.
class Sampler {
public:
    /// Serves a request's sequence `index`, which has random numbers and a fork of the chain of its
    /// own. `seed` is the request's, whatever the config's rng_seed is.
    Sampler(const GenerationConfig& config, std::optional<uint64_t> seed, size_t index, Isa isa,
            const LogitsChain& chain);
    /// Uses the config's rng_seed, and a chain of its processors.
    Sampler(const GenerationConfig& config, size_t index, Isa isa);

    /// `logits` [n], which follow the history, are changed in place where the config asks for it.
    /// Each call is for a token that the sequence keeps, and finds those before it in the history.
    /// So of several proposed tokens in a row each is sampled once it is reached, one after the
    /// other, and nothing is ever rolled back here. Throws LogitsError, and GrammarEnd where a
    /// grammar has no next token.
    SampledToken sample(const TokenHistory& history, float* logits, size_t n);
    /// The log-probabilities beside the latest token: the likeliest ones by the logits that the
    /// chain left, before temperature and filters, and the token itself. Empty unless the config
    /// has logprobs.
    const std::vector<TokenLogProb>& top_log_probs() const { return m_top_log_probs; }
    const std::shared_ptr<SequenceGrammar>& grammar() const { return m_chain.grammar(); }
    /// False: sample() is for the thread that steps.
    bool runs_anywhere() const { return m_chain.runs_anywhere(); }

private:
    SampledToken select(const float* logits, size_t n, size_t position);
    SampledToken select_best(const float* logits, size_t n) const;

    LogitsChain m_chain;
    std::optional<RandomSelection> m_random;  // of do_sample
    Isa m_isa;
    size_t m_num_log_probs;
    std::vector<TokenLogProb> m_top_log_probs;
};

}  // namespace pagewheel
