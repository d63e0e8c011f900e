// No end before a number of tokens.
#include <algorithm>

#include "sampling/logits_chain.hpp"

namespace pagewheel {
namespace {

/// Whether a token may come that is none of these, which ascend.
bool has_other(const LogitsRow& row, const std::vector<int64_t>& tokens) {
    constexpr float banned = -std::numeric_limits<float>::infinity();
    size_t begin = 0;
    const auto is_left = [&](size_t end) {
        const float* found = std::find_if(row.logits + begin, row.logits + end,
                                          [](float logit) { return logit != banned; });
        return found != row.logits + end;
    };
    for (const int64_t token : tokens) {
        if (!row.has(token)) continue;
        if (is_left(size_t(token))) return true;
        begin = size_t(token) + 1;
    }
    return is_left(row.size);
}

}  // namespace

/// Bans the stop tokens until so many were generated. A text that its grammar lets only end, ends.
std::unique_ptr<LogitsProcessor> make_min_new_tokens(const GenerationConfig& config,
                                                     const TokenRules& rules) {
    const size_t least = std::max(config.min_new_tokens, config.min_tokens);
    if (least == 0) return nullptr;
    const bool may_end = rules.grammar != nullptr;
    return make_processor([least, lists = token_lists(config, rules), may_end](
                              const LogitsRow& row, const TokenHistory& history) {
        const std::vector<int64_t>& stops = lists->stop;
        if (history.num_generated() >= least || (may_end && !has_other(row, stops))) return;
        for (const int64_t token : stops) row.ban(token);
    });
}

}  // namespace pagewheel
