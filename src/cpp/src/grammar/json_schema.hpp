// JSON schemas: what is checked before llguidance reads them, and the places of what it refuses.
#pragma once

#include <string>

#include "grammar/grammar_limits.hpp"

namespace pagewheel {

/// The schema with our options for llguidance in it, unless it has some itself ("x-guidance"):
/// white space between tokens is bounded, so that a model cannot write it for ever. Throws
/// GrammarError for what is no JSON (with line and column), no schema, or beyond the limits.
/// `is_open`: objects may have properties that the schema does not declare, where it does not
/// mention additionalProperties. Otherwise they may not, unless allOf, $ref or conditions put the
/// object together of several schemas: closing one of them would forbid what the others declare.
std::string prepare_json_schema(const std::string& schema, const GrammarLimits& limits,
                                bool is_open = false);

/// Where (JSON pointers) a schema has what llguidance refuses for sure. Empty where that is
/// unknown.
std::string refused_places(const std::string& schema);

}  // namespace pagewheel
