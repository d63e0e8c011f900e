// A compiled grammar, and what one is compiled from: the interface that a grammar library is
// behind.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pagewheel/grammar_matcher.hpp"

namespace pagewheel {

/// What a grammar needs to know of a model's tokens.
struct GrammarVocabulary {
    std::vector<std::string> tokens;      ///< bytes by id
    std::vector<int64_t> special_tokens;  ///< ids that are no text; their bytes are their names
    int64_t end_token = -1;               ///< the one that ends a text; -1: none
    /// Ids of a text (UTF-8) that others stand around: nothing is added. Called by any thread.
    std::function<std::vector<int64_t>(const std::string&)> tokenize;
};

/// A grammar as the library reads it.
struct GrammarSource {
    std::string kind;  ///< "lark" or "json_schema"
    std::string text;
};

/// Compiled for a vocabulary. Shared by all sequences that use it, in any threads.
class CompiledGrammar {
public:
    virtual ~CompiledGrammar() = default;
    /// A matcher at the beginning. What ends a text are `stop_tokens`, or without any the
    /// vocabulary's end token.
    virtual std::unique_ptr<GrammarMatcher> start(
        const std::vector<int64_t>& stop_tokens) const = 0;
    /// A limit was reached that all its matchers share: compile it anew.
    virtual bool is_spent() const = 0;
};

}  // namespace pagewheel
