// OpenAI's bias of single tokens.
#include "sampling/logits_chain.hpp"

namespace pagewheel {

/// Adds to the token's value, once. Log-probabilities are not normalised again.
std::unique_ptr<LogitsProcessor> make_logit_bias(const GenerationConfig& config,
                                                 const TokenRules& rules) {
    if (config.logit_bias.empty()) return nullptr;
    return make_processor(
        [lists = token_lists(config, rules)](const LogitsRow& row, const TokenHistory&) {
            for (const auto& [token, bias] : lists->biases)
                if (row.has(token)) row.logits[token] += bias;
        });
}

}  // namespace pagewheel
