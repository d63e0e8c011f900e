// A compiled grammar, and what one is compiled from. Behind it is the grammar library.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "grammar/grammar_limits.hpp"
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
    std::vector<std::string> schemas = {};  ///< JSON schemas in it, as the caller wrote them
};

namespace llguidance {

/// A model's vocabulary: made once, shared by all of the model's grammars.
class SharedTokenizer;
/// Takes a tenth of a second for 49,000 tokens, half of one for 262,000.
std::shared_ptr<const SharedTokenizer> make_tokenizer(GrammarVocabulary vocabulary);

struct Shared;

}  // namespace llguidance

/// Compiled for a vocabulary. Shared by all sequences that use it, in any threads.
class CompiledGrammar {
public:
    /// Compiles on the calling thread, whatever time and stack that takes. Throws GrammarError.
    CompiledGrammar(std::shared_ptr<const llguidance::SharedTokenizer> tokenizer,
                    const GrammarSource& source, const GrammarLimits& limits);

    /// A matcher at the beginning. What ends a text are `stop_tokens`, or without any the
    /// vocabulary's end token.
    std::unique_ptr<GrammarMatcher> start(const std::vector<int64_t>& stop_tokens) const;
    /// A limit was reached that all its matchers share: compile it anew.
    bool is_spent() const;

private:
    std::shared_ptr<llguidance::Shared> m_shared;  // with the matchers
};

}  // namespace pagewheel
