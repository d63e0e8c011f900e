// Sequences of tokens that are never generated.
#include <algorithm>

#include "sampling/logits_chain.hpp"

namespace pagewheel {
namespace {

using Sequence = std::vector<int64_t>;

struct ByTokenBeforeLast {
    bool operator()(const Sequence& a, int64_t b) const { return before_last(a) < b; }
    bool operator()(int64_t a, const Sequence& b) const { return a < before_last(b); }
};

/// Whether the sequence would be complete with its last token.
bool is_due(const Sequence& sequence, const std::vector<int64_t>& tokens) {
    const size_t size = sequence.size() - 1;
    return size <= tokens.size() &&
           std::equal(sequence.begin(), sequence.end() - 1, tokens.end() - ptrdiff_t(size));
}

}  // namespace

/// Bans the last token of a sequence where those before it stand at the end, prompt included. Those
/// of bad_words and of bad_words_ids in one: of thousands only those are looked at whose token
/// before the last is the latest.
std::unique_ptr<LogitsProcessor> make_bad_words_ids(const GenerationConfig& config,
                                                    const TokenRules& rules) {
    const auto lists = token_lists(config, rules);
    if (lists->banned.empty()) return nullptr;
    return make_processor([lists](const LogitsRow& row, const TokenHistory& history) {
        const TokenSequences& all = lists->banned;
        const std::vector<int64_t>& tokens = history.tokens;
        for (const int64_t latest : {int64_t(-1), tokens.empty() ? -2 : tokens.back()}) {
            const auto [begin, end] =
                std::equal_range(all.begin(), all.end(), latest, ByTokenBeforeLast());
            for (auto sequence = begin; sequence != end; ++sequence)
                if (is_due(*sequence, tokens)) row.ban(sequence->back());
        }
    });
}

}  // namespace pagewheel
