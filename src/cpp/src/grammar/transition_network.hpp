// Texts of regular parts and rules, put together so that a lexer reads them exactly.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "grammar/lark_text.hpp"

namespace pagewheel {

/// A regular language as an operand of Lark: a name or a literal.
struct RegularText {
    std::string expression = {};  ///< empty: of the empty text alone
    bool is_constant = false;     ///< one text, which is not empty
};

/// An automaton whose transitions read a regular text and then a rule. (Recursive transition
/// networks are such automata.)
///
/// A lexer takes the longest match. A terminal behind which a part is optional would take what this
/// part begins with: of `/[ab]*/ (", a" json)? "ab="` it would take the last constant. So all that
/// is regular between two rules, on each way from one to the other, is one terminal.
struct TransitionNetwork {
    struct Transition {
        size_t from;
        RegularText before;
        std::string rule;  ///< empty: there is none
        size_t to;         ///< not the start
    };
    struct Final {
        size_t state;
        RegularText after;  ///< up to the end of the text
    };

    static TransitionNetwork regular(RegularText text) { return {1, {}, {{0, std::move(text)}}}; }
    /// A rule, of which nothing is known.
    static TransitionNetwork rule(std::string name) {
        return {2, {{0, {}, std::move(name), 1}}, {{1, {}}}};
    }

    bool is_regular() const { return transitions.empty(); }
    /// The texts without a rule; null where there are none.
    const RegularText* whole() const {
        for (const Final& each : finals)
            if (each.state == 0) return &each.after;
        return nullptr;
    }

    size_t num_states = 1;  ///< The first one, 0, is the start.
    std::vector<Transition> transitions = {};
    std::vector<Final> finals = {};  ///< At most one of them is at the start.
};

/// Puts networks together, and writes them as rules.
class NetworkWriter {
public:
    explicit NetworkWriter(LarkWriter& lark) : m_lark(lark) {}

    TransitionNetwork sequence(const std::vector<TransitionNetwork>& parts);
    TransitionNetwork alternatives(const std::vector<TransitionNetwork>& parts);
    TransitionNetwork optional(TransitionNetwork part);
    /// One or more, with `separator` between them.
    TransitionNetwork repeated(TransitionNetwork part, const TransitionNetwork& separator);
    /// A rule of its own, where terminals end and begin.
    TransitionNetwork apart(const TransitionNetwork& part);
    /// Name of the network's rule or terminal.
    std::string name(const TransitionNetwork& network);

private:
    RegularText joined(const RegularText& a, const RegularText& b);
    RegularText starred(const RegularText& text);
    TransitionNetwork two(TransitionNetwork a, TransitionNetwork b);

    LarkWriter& m_lark;
};

}  // namespace pagewheel
