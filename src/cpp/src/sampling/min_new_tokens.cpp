// No end before a number of tokens.
#include "sampling/logits_chain.hpp"

namespace pagewheel {

/// Bans the stop tokens until min_new_tokens were generated.
std::unique_ptr<LogitsProcessor> make_min_new_tokens(const GenerationConfig& config,
                                                     const TokenRules& /*rules*/) {
    const size_t least = config.min_new_tokens;
    if (least == 0) return nullptr;
    std::vector<int64_t> stops(config.stop_token_ids.begin(), config.stop_token_ids.end());
    if (config.eos_token_id >= 0) stops.push_back(config.eos_token_id);
    return make_processor([least, stops](const LogitsRow& row, const TokenHistory& history) {
        if (history.num_generated() >= least) return;
        for (const int64_t token : stops) row.ban(token);
    });
}

}  // namespace pagewheel
