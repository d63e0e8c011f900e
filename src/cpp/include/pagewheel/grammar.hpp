// Checking texts against a grammar.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pagewheel/grammar_matcher.hpp"
#include "pagewheel/structured_output.hpp"
#include "pagewheel/tokenizer.hpp"

namespace pagewheel {

/// The shared library of llguidance that grammars need, where none was linked. It is loaded at the
/// first grammar. Python sets the one of the installed package.
PAGEWHEEL_API void set_grammar_library(const std::string& path);
/// The versions of llguidance that grammars may use, as pip has them.
PAGEWHEEL_API const char* grammar_library_version();

/// A grammar compiled for a tokenizer. Copies share it. Any thread may use it.
class PAGEWHEEL_API Grammar {
public:
    /// Throws GrammarError for a grammar that is refused, Error without llguidance.
    Grammar(const StructuredOutputConfig& config, const Tokenizer& tokenizer);

    /// Whether the whole text is of the grammar.
    bool accepts(const std::string& text) const;
    /// Whether a text of the grammar begins like this.
    bool accepts_prefix(const std::string& text) const;
    /// A matcher at the beginning of a text, which the tokens of `stop_tokens` may end; without
    /// any, the tokenizer's end-of-text token.
    std::unique_ptr<GrammarMatcher> matcher(const std::vector<int64_t>& stop_tokens = {}) const;

    struct Impl;  // internal: text/grammar.cpp
private:
    std::shared_ptr<const Impl> m_impl;
};

}  // namespace pagewheel
