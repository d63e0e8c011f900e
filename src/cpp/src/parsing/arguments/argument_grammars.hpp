// The notations of arguments: one function and one file for each. A new one is a value of
// ArgumentNotation::Kind, a file beside this one, and a line in argument_grammar.cpp.
#pragma once

#include "parsing/arguments/argument_schema.hpp"
#include "parsing/call_notation.hpp"

namespace pagewheel {

GrammarNode json_argument_grammar(ArgumentSchema& schema, const ArgumentNotation& notation);
GrammarNode python_argument_grammar(ArgumentSchema& schema, const ArgumentNotation& notation);
GrammarNode quoted_argument_grammar(ArgumentSchema& schema, const ArgumentNotation& notation);
GrammarNode tagged_argument_grammar(ArgumentSchema& schema, const ArgumentNotation& notation);

}  // namespace pagewheel
