#include "sampling/sampler.hpp"

#include "sampling/log_probs.hpp"

namespace pagewheel {

Sampler::Sampler(const GenerationConfig& config, std::optional<uint64_t> seed, size_t index,
                 Isa isa, const LogitsChain& chain)
    : m_chain(config.is_beam_search() ? LogitsChain() : chain.fork()),  // beams have their own
      m_selection(make_selection(config, seed, index, isa)),
      m_isa(isa),
      m_num_log_probs(config.logprobs) {}

Sampler::Sampler(const GenerationConfig& config, size_t index, Isa isa)
    : Sampler(config, config.rng_seed, index, isa, LogitsChain(config)) {}

SampledToken Sampler::sample(const TokenHistory& history, float* logits, size_t n) {
    m_chain.process({logits, n}, history);
    const SampledToken token = select(logits, n, history.num_generated());
    if (m_num_log_probs > 0)
        LogProbs(logits, n, m_isa).find_top(m_num_log_probs, token.id, m_top_log_probs);
    return token;
}

SampledToken Sampler::select(float* logits, size_t n, size_t position) {
    try {
        return m_selection->select(logits, n, position);
    } catch (const NoTokenLeft& error) {
        // What the grammar allows, the request's bans or the model forbid.
        if (m_chain.grammar()) throw GrammarEnd(false, error.what());
        throw;
    }
}

}  // namespace pagewheel
