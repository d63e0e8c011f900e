// No so many tokens in a row twice.
#include <algorithm>

#include "sampling/logits_chain.hpp"

namespace pagewheel {

/// Bans the tokens after which the last `size` tokens would stand in the sequence a second time.
std::unique_ptr<LogitsProcessor> make_no_repeat_ngram_size(const GenerationConfig& config,
                                                           const TokenRules& /*rules*/) {
    const size_t size = config.no_repeat_ngram_size;
    if (size == 0 || size == GenerationConfig::unlimited) return nullptr;
    return make_processor([size](const LogitsRow& row, const TokenHistory& history) {
        const std::vector<int64_t>& tokens = history.tokens;
        if (size > tokens.size()) return;
        const auto before = ptrdiff_t(size - 1);
        const auto tail = tokens.end() - before;
        for (auto at = tokens.begin(); at + before < tokens.end(); ++at)
            if (std::equal(tail, tokens.end(), at)) row.ban(at[before]);
    });
}

}  // namespace pagewheel
