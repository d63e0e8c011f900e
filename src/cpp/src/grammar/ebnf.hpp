// Grammars as xgrammar and llama.cpp write them: `root ::= "a" [0-9]+ other  # comment`.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "grammar/grammar_limits.hpp"
#include "grammar/lark_text.hpp"

namespace pagewheel {

/// One side of a rule, or a part of it. A text is a sequence of its characters.
struct EbnfExpression {
    enum class Kind { CHARACTERS, RULE, SEQUENCE, CHOICE, REPEAT };
    Kind kind = Kind::SEQUENCE;
    std::string rule = {};                                   ///< name of a RULE
    std::vector<std::pair<uint32_t, uint32_t>> ranges = {};  ///< of CHARACTERS: code points
    bool is_negated = false;                                 ///< of CHARACTERS
    std::vector<EbnfExpression> parts = {};                  ///< of SEQUENCE, CHOICE; one of REPEAT
    size_t least = 0, most = 0;                              ///< of REPEAT
    bool is_recursive = false;    ///< Known where the grammar is translated.
    size_t line = 0, column = 0;  ///< of RULE
    size_t depth = 1;             ///< of the tree that it is
};

constexpr size_t ebnf_unbounded = SIZE_MAX;
constexpr uint32_t last_code_point = 0x10ffff;  ///< of Unicode

struct EbnfGrammar {
    std::map<std::string, EbnfExpression> rules;
};

/// Throws GrammarError with line and column.
EbnfGrammar parse_ebnf(const std::string& text, const GrammarLimits& limits);

/// Name of the Lark rule of the grammar's `root`. Throws GrammarError.
std::string ebnf_to_lark(const std::string& text, LarkWriter& lark, const GrammarLimits& limits);

}  // namespace pagewheel
