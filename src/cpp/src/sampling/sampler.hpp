// The next token of a sequence that is not a beam.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/isa.hpp"
#include "pagewheel/generation_config.hpp"
#include "pagewheel/generation_handle.hpp"
#include "pagewheel/logits_processor.hpp"
#include "sampling/logits_chain.hpp"
#include "sampling/selection.hpp"

namespace pagewheel {

/// Picks the tokens of one sequence: the chain of logits processors, then a selection. The order is
/// that of generation_parameters.def.
class Sampler {
public:
    /// Of a request's sequence `index`, which has random numbers of its own, and of the chain a
    /// fork. `seed` is the request's, whatever the config's rng_seed is.
    Sampler(const GenerationConfig& config, std::optional<uint64_t> seed, size_t index, Isa isa,
            const LogitsChain& chain);
    /// With the config's rng_seed, and a chain of its processors.
    Sampler(const GenerationConfig& config, size_t index, Isa isa);

    /// `logits` [n], which follow the history, are changed in place where the config asks for it.
    /// Each call is for a token that the sequence keeps, and finds those before it in the history.
    /// So of several proposed tokens in a row each is sampled once it is reached, one after the
    /// other, and nothing is ever rolled back here. Throws LogitsError, and GrammarEnd where a
    /// grammar has no next token.
    SampledToken sample(const TokenHistory& history, float* logits, size_t n);
    /// Of the latest token: the likeliest by the logits that the chain left, before temperature and
    /// filters, and the token itself. Empty unless the config has logprobs.
    const std::vector<TokenLogProb>& top_log_probs() const { return m_top_log_probs; }
    const std::shared_ptr<GrammarRule>& grammar() const { return m_chain.grammar(); }
    /// False: sample() is for the thread that steps.
    bool runs_anywhere() const { return m_chain.runs_anywhere(); }

private:
    SampledToken select(float* logits, size_t n, size_t position);

    LogitsChain m_chain;
    std::unique_ptr<Selection> m_selection;
    Isa m_isa;
    size_t m_num_log_probs;
    std::vector<TokenLogProb> m_top_log_probs;
};

}  // namespace pagewheel
