// The regular parts of EBNF as automata, to see where taking the longest match would be wrong.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "grammar/ebnf.hpp"

namespace pagewheel {

/// Code points: ranges in order, apart from each other.
using CharacterSet = std::vector<std::pair<uint32_t, uint32_t>>;

CharacterSet united(const CharacterSet& a, const CharacterSet& b);
bool has_common(const CharacterSet& a, const CharacterSet& b);

/// A nondeterministic automaton without empty moves: a state for each character of the expression
/// (Glushkov's construction). A repetition with bounds counts as one without: it reads more texts.
struct CharacterAutomaton {
    std::vector<CharacterSet> characters;   // read on the way into a state
    std::vector<std::vector<size_t>> next;  // states behind a state
    std::vector<size_t> first;              // states at the beginning
    std::vector<bool> is_last;              // a text may end here
    bool is_nullable = true;
    bool is_too_large = false;  // the rest is not filled then

    CharacterSet first_characters() const;
};

/// Of a sequence of expressions without recursion.
CharacterAutomaton to_automaton(const EbnfGrammar& grammar,
                                const std::vector<const EbnfExpression*>& sequence);

/// Whether some text of `shorter` and then a character of `follow` begins a text of `longer`: a
/// lexer that takes the longest match would never end `shorter` there. False also for automata that
/// are too large to tell.
bool may_overrun(const CharacterAutomaton& longer, const CharacterAutomaton& shorter,
                 const CharacterSet& follow);

}  // namespace pagewheel
