// No so many tokens in a row twice.
#include "sampling/logits_chain.hpp"
#include "sampling/repetitions.hpp"
#include "sampling/shared_prompt.hpp"
#include "sampling/token_counts.hpp"

namespace pagewheel {

/// Bans the tokens after which the last `size` tokens would stand in the sequence a second time.
std::unique_ptr<LogitsProcessor> make_no_repeat_ngram_size(const GenerationConfig& config,
                                                           const TokenRules& /*rules*/) {
    const size_t size = config.no_repeat_ngram_size;
    if (size == 0 || size == GenerationConfig::unlimited) return nullptr;
    if (size == 1)
        return make_processor(
            [seen = TokenCounts()](const LogitsRow& row, const TokenHistory& history) mutable {
                seen.update(history.tokens, 0);
                for (const auto& [token, count] : seen) row.ban(token);
            });
    return make_processor([size, repetitions = SharedPrompt(Repetitions(size - 1))](
                              const LogitsRow& row, const TokenHistory& history) mutable {
        for (const auto& [next, length] : repetitions.read(history).places())
            if (length >= size - 1) row.ban(history.tokens[next]);
    });
}

}  // namespace pagewheel
