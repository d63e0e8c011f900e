// Terminals of which a lexer that takes the longest match would take too much.
#pragma once

#include <cstddef>
#include <vector>

#include "grammar/ebnf_plan.hpp"

namespace pagewheel {

using EbnfTerminal = std::vector<const EbnfExpression*>;

/// Their indices. Empty for a grammar that is too large to look through.
std::vector<size_t> find_overruns(const EbnfGrammar& grammar, const EbnfPlan& plan);

}  // namespace pagewheel
