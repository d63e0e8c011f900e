#include <algorithm>
#include <cctype>
#include <tuple>

#include "base/check.hpp"
#include "base/code_point.hpp"
#include "grammar/ebnf.hpp"
#include "pagewheel/grammar_matcher.hpp"

namespace pagewheel {
namespace {

using Kind = EbnfExpression::Kind;

bool is_name_start(char c) {
    return std::isalpha(static_cast<unsigned char>(c)) || c == '_';
}

bool is_name_part(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
}

class Parser {
public:
    Parser(const std::string& text, const GrammarLimits& limits) : m_text(text), m_limits(limits) {
        for (size_t i = 0; i < text.size(); ++i)
            if (text[i] == '\n') m_lines.push_back(i + 1);
    }

    EbnfGrammar grammar() {
        EbnfGrammar result;
        for (skip_space(); m_at < m_text.size(); skip_space()) {
            if (!rule_begins()) fail("expected a rule: name ::= ...");
            const size_t begin = m_at;
            const std::string rule = name();
            if (result.rules.count(rule) > 0) {
                m_at = begin;
                fail(concat("rule '", rule, "' is defined twice"));
            }
            skip_space();
            m_at += 3;
            result.rules.emplace(rule, choice());
        }
        if (result.rules.count("root") == 0) throw GrammarError("EBNF: there is no rule 'root'");
        return result;
    }

private:
    EbnfExpression choice() {
        if (++m_depth > m_limits.ebnf_nesting)
            fail(concat("parentheses more than ", m_limits.ebnf_nesting, " deep"));
        EbnfExpression result{Kind::CHOICE};
        do {
            m_has_alternatives = !result.parts.empty();
            add_part(result, sequence());
        } while (take('|'));
        --m_depth;
        if (result.parts.size() > 1) return result;
        return EbnfExpression(std::move(result.parts[0]));
    }

    EbnfExpression sequence() {
        skip_space();
        EbnfExpression result{Kind::SEQUENCE};
        while (m_at < m_text.size() && peek() != '|' && peek() != ')' && !rule_begins()) {
            add_part(result, repeated());
            skip_space();
        }
        if (result.parts.empty() && peek() != '|' && !m_has_alternatives)
            fail("expected a text, [characters], a rule or parentheses");
        if (result.parts.size() != 1) return result;
        return EbnfExpression(std::move(result.parts[0]));
    }

    EbnfExpression repeated() {
        EbnfExpression result = atom();
        // Space may stand before what repeats, as in "a" {2,3}.
        for (size_t before = m_at;; before = m_at) {
            skip_space();
            EbnfExpression repeat{Kind::REPEAT};
            repeat.most = ebnf_unbounded;
            if (take('?'))
                repeat.most = 1;
            else if (take('+'))
                repeat.least = 1;
            else if (take('{'))
                bounds(repeat);
            else if (!take('*')) {
                m_at = before;
                return result;
            }
            add_part(repeat, std::move(result));
            result = std::move(repeat);
        }
    }

    void bounds(EbnfExpression& repeat) {
        skip_space();
        if (peek() != ',') repeat.least = number();
        repeat.most = repeat.least;
        if (take(',')) {
            skip_space();
            repeat.most = peek() == '}' ? ebnf_unbounded : number();
        }
        expect('}', "behind the bounds of a repetition");
        if (repeat.most < repeat.least)
            fail(concat("repetitions from ", repeat.least, " to ", repeat.most));
    }

    size_t number() {
        skip_space();
        size_t value = 0;
        const size_t begin = m_at;
        for (; std::isdigit(static_cast<unsigned char>(peek())); ++m_at) {
            value = value * 10 + size_t(peek() - '0');
            if (value > m_limits.repetitions)
                fail(concat("more than ", m_limits.repetitions, " repetitions"));
        }
        if (m_at == begin) fail("expected a number");
        skip_space();
        return value;
    }

    EbnfExpression atom() {
        if (peek() == '"') return quoted_text();
        if (peek() == '[') return characters();
        if (take('(')) {
            skip_space();
            if (peek() == '=') fail("lookahead (= ...) is not supported");
            if (take(')')) return {};
            EbnfExpression result = choice();
            skip_space();
            expect(')', "that closes the parentheses");
            return result;
        }
        if (is_name_start(peek())) {
            EbnfExpression result{Kind::RULE};
            std::tie(result.line, result.column) = place(m_at);
            result.rule = name();
            if (peek() == '(') fail(concat("the macro ", result.rule, "(...) is not supported"));
            return result;
        }
        fail("expected a text, [characters], a rule or parentheses");
    }

    EbnfExpression quoted_text() {
        EbnfExpression result{Kind::SEQUENCE};
        ++m_at;
        while (!take('"')) {
            if (m_at >= m_text.size() || peek() == '\n') fail("a text without its closing \"");
            EbnfExpression character{Kind::CHARACTERS};
            const uint32_t code = code_point();
            character.ranges = {{code, code}};
            add_part(result, std::move(character));
        }
        return result;
    }

    EbnfExpression characters() {
        EbnfExpression result{Kind::CHARACTERS};
        ++m_at;
        result.is_negated = take('^');
        while (!take(']')) {
            if (m_at >= m_text.size() || peek() == '\n') fail("[characters] without the closing ]");
            const uint32_t first = code_point();
            uint32_t last = first;
            if (peek() == '-' && m_at + 1 < m_text.size() && m_text[m_at + 1] != ']') {
                ++m_at;
                last = code_point();
            }
            if (last < first) fail("a range of characters whose end is before its begin");
            result.ranges.emplace_back(first, last);
        }
        if (result.ranges.empty() && !result.is_negated) fail("[] allows no character");
        return result;
    }

    /// One character, which may be escaped.
    uint32_t code_point() {
        if (m_at >= m_text.size()) fail("the text ends too early");
        if (take('\\')) {
            if (m_at >= m_text.size()) fail("the text ends too early");
            return escape();
        }
        const Utf8Character character = read_utf8(std::string_view(m_text).substr(m_at));
        if (!character.is_whole) fail("this is no UTF-8");
        m_at += character.length;
        return character.code;
    }

    uint32_t escape() {
        static const std::string letters = "nrtfvbae", codes = "\n\r\t\f\v\b\a\x1b";
        static const std::string themselves = "\"'\\[]-^/?";
        const char c = peek();
        ++m_at;
        if (c == 'x') return hex(2, 2);
        if (c == 'u') return hex(4, 4);
        if (c == 'U') return hex(8, 8);
        const size_t letter = letters.find(c);
        if (letter != std::string::npos) return uint32_t(codes[letter]);
        if (themselves.find(c) != std::string::npos) return uint32_t(c);
        m_at -= 2;
        fail(concat("unknown escape \\", std::string(1, c)));
    }

    uint32_t hex(size_t least, size_t most) {
        uint32_t value = 0;
        size_t count = 0;
        for (; count < most && std::isxdigit(static_cast<unsigned char>(peek())); ++count, ++m_at) {
            const char c = peek();
            value = value * 16 + uint32_t(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
        }
        if (count < least) fail(concat("expected ", least, " hexadecimal digits"));
        if (value > last_code_point || (value >= 0xd800 && value <= 0xdfff))
            fail("an escape that is no Unicode character");
        return value;
    }

    std::string name() {
        const size_t begin = m_at;
        while (m_at < m_text.size() && is_name_part(peek())) ++m_at;
        return m_text.substr(begin, m_at - begin);
    }

    /// A name and `::=`: the rule before is over.
    bool rule_begins() const {
        size_t at = m_at;
        if (at >= m_text.size() || !is_name_start(m_text[at])) return false;
        while (at < m_text.size() && is_name_part(m_text[at])) ++at;
        while (at < m_text.size() && std::isspace(static_cast<unsigned char>(m_text[at]))) ++at;
        return m_text.compare(at, 3, "::=") == 0;
    }

    void skip_space() {
        while (m_at < m_text.size()) {
            if (std::isspace(static_cast<unsigned char>(peek())))
                ++m_at;
            else if (peek() == '#')
                m_at = std::min(m_text.find('\n', m_at), m_text.size());
            else
                return;
        }
    }

    bool take(char c) {
        if (peek() != c || m_at >= m_text.size()) return false;
        ++m_at;
        return true;
    }

    void expect(char c, const char* where) {
        if (!take(c)) fail(concat("expected '", std::string(1, c), "' ", where));
    }

    /// Trees are walked and destroyed recursively, so none may be deep.
    void add_part(EbnfExpression& whole, EbnfExpression part) {
        if (++m_num_parts > m_limits.ebnf_parts)
            fail(concat("more than ", m_limits.ebnf_parts, " characters, classes and rules"));
        whole.depth = std::max(whole.depth, part.depth + 1);
        if (whole.depth > m_limits.ebnf_depth)
            fail(concat("parentheses and repetitions that are together more than ",
                        m_limits.ebnf_depth, " deep"));
        whole.parts.push_back(std::move(part));
    }

    [[noreturn]] void fail(const std::string& what) const {
        const auto [line, column] = place(m_at);
        throw GrammarError(concat("EBNF, line ", line, ", column ", column, ": ", what));
    }

    std::pair<size_t, size_t> place(size_t at) const {
        const auto behind = std::upper_bound(m_lines.begin(), m_lines.end(), at);
        return {size_t(behind - m_lines.begin()), at - *(behind - 1) + 1};
    }

    char peek() const { return m_at < m_text.size() ? m_text[m_at] : '\0'; }

    const std::string& m_text;
    const GrammarLimits& m_limits;
    std::vector<size_t> m_lines{0};  // where they begin
    size_t m_at = 0;
    size_t m_depth = 0, m_num_parts = 0;
    bool m_has_alternatives = false;  // a `|` was before what is read: it may be empty
};

}  // namespace

EbnfGrammar parse_ebnf(const std::string& text, const GrammarLimits& limits) {
    if (text.size() > limits.text_bytes)
        throw GrammarError(
            concat("EBNF of ", text.size(), " bytes; allowed are ", limits.text_bytes));
    return Parser(text, limits).grammar();
}

}  // namespace pagewheel
