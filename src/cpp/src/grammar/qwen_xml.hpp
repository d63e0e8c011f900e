// Parameters of a tool call as Qwen3-Coder writes them.
#pragma once

#include <string>

#include "grammar/grammar_limits.hpp"
#include "grammar/lark_text.hpp"

namespace pagewheel {

/// Name of the rule for `<parameter=name>value</parameter>` of each property, in the schema's
/// order. Throws GrammarError for a schema that says more than the format can hold.
std::string qwen_xml_to_lark(const std::string& schema, LarkWriter& lark,
                             const GrammarLimits& limits, bool has_open_objects);

}  // namespace pagewheel
