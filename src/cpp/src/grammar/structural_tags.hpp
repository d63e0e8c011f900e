// A structural tag as one grammar of llguidance.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

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
std::string structural_tag_to_lark(const StructuredOutputConfig::StructuralTag& node,
                                   const SpecialTokens& special_tokens, const GrammarLimits& limits,
                                   bool has_open_objects);

}  // namespace pagewheel
