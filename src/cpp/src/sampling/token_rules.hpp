// Those rules of a config that name texts, in the model's tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "sampling/grammar_rule.hpp"

namespace pagewheel {

/// Sequences of tokens whose text has a breaker of repetitions in it: by the first token, what
/// follows it. Nothing follows where the token's own text has all of it.
using SequenceBreakers = std::unordered_map<int64_t, std::vector<std::vector<int64_t>>>;

/// Made by whoever has the tokenizer. Empty where the config names no texts and no grammar.
struct TokenRules {
    std::vector<std::vector<int64_t>> bad_words;            ///< the tokens of bad_words
    std::shared_ptr<const SequenceBreakers> breakers = {};  ///< of dry_sequence_breakers
    std::shared_ptr<const GrammarRule> grammar = {};  ///< at its beginning; sequences have forks
    /// What the grammar forces is appended at once, and the model gives no logits for it.
    bool appends_forced = false;
};

}  // namespace pagewheel
