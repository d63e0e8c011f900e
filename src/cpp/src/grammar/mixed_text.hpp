// Texts of regular parts and others, put together so that a lexer reads them exactly.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "grammar/lark_text.hpp"

namespace pagewheel {

/// A lexer takes the longest match. A terminal behind which a part is optional would take what
/// this part begins with. So all that is regular between two other parts, on each way from one to
/// the other, is one terminal: the text is an automaton that moves by a terminal and a rule.
class MixedText {
public:
    /// A regular language as an operand of Lark: a name or a literal.
    struct Regular {
        std::string expression = {};  ///< empty: of the empty text alone
        bool is_constant = false;     ///< one text, which is not empty
    };

    static MixedText regular(Regular text);
    /// A rule, of which nothing is known.
    static MixedText rule(std::string name);

    bool is_regular() const { return m_begins.empty(); }

private:
    friend class MixedTextWriter;

    /// The regular text up to a rule, the rule, and the state behind it.
    struct Move {
        Regular before;
        std::string rule;  ///< empty: there is none
        size_t to;
    };
    struct Link {
        size_t from;
        Move move;
    };
    struct End {
        size_t from;
        Regular after;
    };

    size_t m_num_states = 0;
    std::optional<Regular> m_whole;  // texts without a rule
    std::vector<Move> m_begins;      // to the first rule; regular texts have none
    std::vector<Link> m_links;       // from rule to rule
    std::vector<End> m_ends;         // behind the last rule
};

class MixedTextWriter {
public:
    explicit MixedTextWriter(LarkWriter& lark) : m_lark(lark) {}

    MixedText sequence(const std::vector<MixedText>& texts);
    MixedText alternatives(const std::vector<MixedText>& texts);
    MixedText optional(const MixedText& text);
    /// One or more, with `separator` between them.
    MixedText repeated(MixedText text, const MixedText& separator);
    /// A rule of its own, where terminals end and begin.
    MixedText apart(const MixedText& text);
    /// Name of the text's rule or terminal.
    std::string name(const MixedText& text);

private:
    using Regular = MixedText::Regular;

    Regular joined(const Regular& a, const Regular& b);
    Regular either(const Regular& a, const Regular& b);
    Regular starred(const Regular& text);
    MixedText two(MixedText a, MixedText b);
    /// Lets ends at which terminals may end lead to one state.
    static void unite_ends(MixedText& text);
    /// It ends with a rule or a constant, and nothing else may come there.
    static bool is_cut_at_its_end(const MixedText& text);
    static bool is_large_loop(const MixedText& text);
    /// The same texts, in rules that are recursive at their left.
    MixedText from_the_left(const MixedText& text);
    std::vector<std::string> rules_from_the_left(const MixedText& text,
                                                 const MixedText::Move& begin);

    LarkWriter& m_lark;
};

}  // namespace pagewheel
