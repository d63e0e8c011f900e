// A StructuredOutputConfig as one grammar of llguidance.
#pragma once

#include <string>

#include "grammar/grammar.hpp"
#include "grammar/grammar_limits.hpp"
#include "grammar/structural_tags.hpp"
#include "pagewheel/structured_output.hpp"

namespace pagewheel {

/// Constant texts in which a special token's text stands name that token. Throws GrammarError,
/// InvalidArgument for a config that is not valid.
GrammarSource to_grammar_source(const StructuredOutputConfig& config,
                                const SpecialTokens& special_tokens, const GrammarLimits& limits);

/// The library's words about a grammar that it refused, with the places in the config's JSON
/// schemas that they are about.
std::string explain_refusal(const StructuredOutputConfig& config, const std::string& error);

}  // namespace pagewheel
