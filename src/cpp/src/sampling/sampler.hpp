// The next token of a sequence that is not a beam.
#pragma once

#include <memory>

#include "kernels/isa.hpp"
#include "pagewheel/generation_config.hpp"
#include "sampling/logits_chain.hpp"
#include "sampling/selection.hpp"
#include "sampling/token_history.hpp"

namespace pagewheel {

/// Picks the tokens of one sequence: the chain of logits processors, then a selection. The order is
/// transformers': penalties and bans, temperature, top_k, top_p, min_p; then one draw.
class Sampler {
public:
    /// A seeded request gives its sequence `index` the stream seed + index.
    Sampler(const GenerationConfig& config, size_t index, Isa isa);

    /// `logits` [n], which follow the history, are changed in place where the config asks for it.
    /// Each call is for a token that the sequence keeps, and finds those before it in the history.
    /// So of several proposed tokens in a row each is sampled once it is reached, one after the
    /// other, and nothing is ever taken back here. Throws LogitsError.
    SampledToken sample(const TokenHistory& history, float* logits, size_t n);

private:
    LogitsChain m_chain;
    std::unique_ptr<Selection> m_selection;
};

}  // namespace pagewheel
