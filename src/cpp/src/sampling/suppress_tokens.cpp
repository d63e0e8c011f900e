// Tokens that are never generated.
#include "sampling/logits_chain.hpp"

namespace pagewheel {

std::unique_ptr<LogitsProcessor> make_suppress_tokens(const GenerationConfig& config,
                                                      const TokenRules& rules) {
    if (config.suppress_tokens.empty()) return nullptr;
    return make_processor(
        [lists = token_lists(config, rules)](const LogitsRow& row, const TokenHistory&) {
            for (const int64_t token : lists->suppressed) row.ban(token);
        });
}

}  // namespace pagewheel
