// A StructuredOutputConfig as one grammar of llguidance.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "grammar/grammar.hpp"
#include "grammar/grammar_limits.hpp"
#include "pagewheel/structured_output.hpp"

namespace pagewheel {

using SpecialTokens = std::vector<std::pair<std::string, int64_t>>;  // by text

/// Text, or one special token.
struct ConstantPart {
    std::string text;
    int64_t token = -1;  ///< -1: it is text
};

/// A constant text in which special tokens may stand: at least one part. Where several special
/// tokens begin, the longest is taken.
std::vector<ConstantPart> split_at_special_tokens(const std::string& text,
                                                  const SpecialTokens& special_tokens);

/// Lark. `has_open_objects`: as prepare_json_schema() has it. Throws GrammarError, InvalidArgument
/// for what is missing.
GrammarSource structural_tag_to_lark(const StructuredOutputConfig::StructuralTag& node,
                                     const SpecialTokens& special_tokens,
                                     const GrammarLimits& limits, bool has_open_objects);

/// Constant texts in which a special token's text stands name that token. Throws GrammarError,
/// InvalidArgument for a config that is not valid.
GrammarSource to_grammar_source(const StructuredOutputConfig& config,
                                const SpecialTokens& special_tokens, const GrammarLimits& limits);

/// The library's words about a grammar that it refused, with the places in the config's JSON
/// schemas that they are about.
std::string explain_refusal(const StructuredOutputConfig& config, const GrammarSource& source,
                            const std::string& error);

}  // namespace pagewheel
