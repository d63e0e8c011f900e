// Tokens beside which none is generated.
#include <algorithm>

#include "sampling/logits_chain.hpp"

namespace pagewheel {

/// Bans what lies between the allowed tokens.
std::unique_ptr<LogitsProcessor> make_allowed_token_ids(const GenerationConfig& config,
                                                        const TokenRules& rules) {
    if (config.allowed_token_ids.empty()) return nullptr;
    return make_processor(
        [lists = token_lists(config, rules)](const LogitsRow& row, const TokenHistory&) {
            constexpr float banned = -std::numeric_limits<float>::infinity();
            float* rest = row.logits;
            for (const int64_t token : lists->allowed) {  // ascending
                if (!row.has(token)) continue;
                std::fill(rest, row.logits + token, banned);
                rest = row.logits + token + 1;
            }
            std::fill(rest, row.logits + row.size, banned);
        });
}

}  // namespace pagewheel
