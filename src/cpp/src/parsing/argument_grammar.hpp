// Grammars of a call's arguments, from the JSON schema of its function.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "parsing/call_notation.hpp"
#include "parsing/grammar_parts.hpp"

namespace pagewheel {

/// `whose` names the family and the function in errors. Throws InvalidArgument for a schema that
/// the notation cannot be held to.
GrammarNode argument_grammar(const ArgumentNotation& notation, const nlohmann::ordered_json& schema,
                             const std::string& whose);

}  // namespace pagewheel
