// What a config names in tokens and texts, in the form that the processors of its sequences share.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/text_automaton.hpp"
#include "pagewheel/generation_config.hpp"
#include "sampling/grammar_rule.hpp"

namespace pagewheel {

/// DRY's dry_sequence_breakers. They are looked for in the text of the tokens, whatever the tokens'
/// boundaries.
struct SequenceBreakers {
    TextAutomaton texts;
    std::shared_ptr<const std::vector<std::string>> vocabulary;  ///< bytes by token

    /// The bytes of a token; none where it has no text.
    const std::string& bytes(int64_t token) const;
    /// Whether the token's own text has all of a breaker.
    bool is_in(int64_t token) const;
};

/// The lists of tokens that a config names.
struct TokenLists {
    /// With `bad_words` as tokens.
    TokenLists(const GenerationConfig& config, const TokenSequences& bad_words);

    std::vector<std::pair<int64_t, float>> biases;   // logit_bias
    std::vector<int64_t> allowed, suppressed, stop;  // ascending
    TokenSequences banned;  // bad_words_ids and bad_words, by the token before the last
};

/// Made by whoever has the tokenizer. Empty where the config names no texts and no grammar.
struct TokenRules {
    TokenSequences bad_words;                               ///< the tokens of bad_words
    std::shared_ptr<const SequenceBreakers> breakers = {};  ///< of dry_sequence_breakers
    std::shared_ptr<const GrammarRule> grammar = {};  ///< at its beginning; sequences have forks
    /// What the grammar forces is appended at once, and the model gives no logits for it.
    bool appends_jump_forward = false;
    /// Of the config and of bad_words, made once for all requests with the config.
    std::shared_ptr<const TokenLists> lists = {};
};

/// Those of the rules; new ones if they have none.
std::shared_ptr<const TokenLists> token_lists(const GenerationConfig& config,
                                              const TokenRules& rules);

/// Of a sequence the token before its last; -1 of a single token.
inline int64_t before_last(const std::vector<int64_t>& sequence) {
    return sequence.size() < 2 ? -1 : *(sequence.end() - 2);
}

}  // namespace pagewheel
