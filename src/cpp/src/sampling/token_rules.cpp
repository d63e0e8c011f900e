#include "sampling/token_rules.hpp"

#include <algorithm>

namespace pagewheel {

const std::string& SequenceBreakers::bytes(int64_t token) const {
    static const std::string none;
    return size_t(token) < vocabulary->size() ? (*vocabulary)[size_t(token)] : none;
}

bool SequenceBreakers::is_in(int64_t token) const {
    TextAutomaton::State state = TextAutomaton::start;
    const std::string& own = bytes(token);
    return std::any_of(own.begin(), own.end(), [&](char byte) {
        state = texts.next(state, byte);
        return texts.shortest_match(state) > 0;
    });
}

TokenLists::TokenLists(const GenerationConfig& config, const TokenSequences& bad_words)
    : biases(config.logit_bias.begin(), config.logit_bias.end()),
      allowed(config.allowed_token_ids.begin(), config.allowed_token_ids.end()),
      suppressed(config.suppress_tokens.begin(), config.suppress_tokens.end()),
      banned(config.bad_words_ids) {
    std::set<int64_t> stops = config.stop_token_ids;
    stops.insert(config.eos_token_id);  // or -1, which no row has
    stop.assign(stops.begin(), stops.end());
    banned.insert(banned.end(), bad_words.begin(), bad_words.end());
    std::stable_sort(banned.begin(), banned.end(),
                     [](const auto& a, const auto& b) { return before_last(a) < before_last(b); });
}

std::shared_ptr<const TokenLists> token_lists(const GenerationConfig& config,
                                              const TokenRules& rules) {
    return rules.lists ? rules.lists : std::make_shared<const TokenLists>(config, rules.bad_words);
}

}  // namespace pagewheel
