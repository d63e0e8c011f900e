// OpenAI's bias of single tokens.
#include "sampling/logits_chain.hpp"

namespace pagewheel {

/// Adds to the token's value, once. Log-probabilities are not normalised again.
std::unique_ptr<LogitsProcessor> make_logit_bias(const GenerationConfig& config,
                                                 const TokenRules& /*rules*/) {
    if (config.logit_bias.empty()) return nullptr;
    return make_processor([biases = std::vector<std::pair<int64_t, float>>(
                               config.logit_bias.begin(), config.logit_bias.end())](
                              const LogitsRow& row, const TokenHistory&) {
        for (const auto& [token, bias] : biases)
            if (row.has(token)) row.logits[token] += bias;
    });
}

}  // namespace pagewheel
