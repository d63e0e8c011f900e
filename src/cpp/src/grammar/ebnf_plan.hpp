// Which parts of an EBNF grammar become terminals of a lexer, and which rules over them.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "grammar/ebnf.hpp"

namespace pagewheel {

struct EbnfNode {
    enum class Kind { TERMINAL, RULE, SEQUENCE, CHOICE, REPEAT };
    Kind kind = Kind::SEQUENCE;
    size_t index = 0;                        ///< of TERMINAL and RULE
    std::vector<EbnfNode> parts;             ///< of SEQUENCE, CHOICE; one of REPEAT
    const EbnfExpression* bounds = nullptr;  ///< of REPEAT
};

/// Its expressions are the grammar's, which must live as long.
struct EbnfPlan {
    std::vector<std::vector<const EbnfExpression*>> terminals;  ///< each a sequence
    std::vector<EbnfNode> rules;                                ///< the first is root
    std::deque<EbnfExpression> characters;  ///< those of texts that were taken apart
};

/// What is regular becomes terminals as large as they can be without changing the grammar: where a
/// lexer that takes the longest match would take too much, a part is taken apart, in the end into
/// characters. (Grammars of hundreds of terminals are not looked through.) Throws GrammarError.
EbnfPlan plan_ebnf(const EbnfGrammar& grammar);

}  // namespace pagewheel
