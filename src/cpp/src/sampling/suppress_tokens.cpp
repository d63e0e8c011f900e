// Tokens that are never generated.
#include "sampling/logits_chain.hpp"

namespace pagewheel {

std::unique_ptr<LogitsProcessor> make_suppress_tokens(const GenerationConfig& config,
                                                      const TokenRules& /*rules*/) {
    if (config.suppress_tokens.empty()) return nullptr;
    return make_processor([banned = std::vector<int64_t>(config.suppress_tokens.begin(),
                                                         config.suppress_tokens.end())](
                              const LogitsRow& row, const TokenHistory&) {
        for (const int64_t token : banned) row.ban(token);
    });
}

}  // namespace pagewheel
