// OpenAI's penalties on tokens that were generated.
#include "sampling/logits_chain.hpp"
#include "sampling/token_counts.hpp"

namespace pagewheel {

/// Subtracts from each generated token presence_penalty once and frequency_penalty for each
/// occurrence. The prompt does not count. Both in one: they share the counts, and one subtraction
/// rounds once.
std::unique_ptr<LogitsProcessor> make_presence_penalty(const GenerationConfig& config,
                                                       const TokenRules& /*rules*/) {
    const float presence = config.presence_penalty, frequency = config.frequency_penalty;
    if (presence == 0.0f && frequency == 0.0f) return nullptr;
    return make_processor([presence, frequency, generated = TokenCounts()](
                              const LogitsRow& row, const TokenHistory& history) mutable {
        generated.update(history.tokens, history.prompt_length);
        for (const auto& [token, count] : generated)
            if (row.has(token)) row.logits[token] -= presence + frequency * float(count);
    });
}

}  // namespace pagewheel
