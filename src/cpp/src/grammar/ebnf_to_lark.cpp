// EBNF as Lark. What is regular becomes terminals as large as they can be without changing the
// grammar: llguidance's lexer takes the longest match, so where that would be too much, a part is
// taken apart, in the end into characters. Without this `root ::= "a"* x` with a recursive
// `x ::= "ab" | "(" x ")"` would not accept "aab", as tests/python/grammar/test_ebnf.py finds.
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "base/check.hpp"
#include "base/code_point.hpp"
#include "grammar/ebnf.hpp"
#include "pagewheel/grammar_matcher.hpp"

namespace pagewheel {
namespace {

using Kind = EbnfExpression::Kind;

constexpr size_t most_depth = 1000;  // of rules and parentheses that lie in a terminal
constexpr size_t most_rounds = 200;
constexpr size_t most_terminals = 200;  // of a grammar that is looked through
constexpr size_t most_rules = 500;
constexpr size_t most_places = 1000;  // of a text, by what may begin there

using Expressions = std::unordered_set<const EbnfExpression*>;

/// A symbol of a grammar over terminals: a terminal, or a rule or a part of one, which is what its
/// expression makes of other symbols.
struct Symbol {
    const EbnfExpression* expression;
    bool is_terminal;
    std::vector<size_t> parts = {};  ///< indices of symbols
};

/// Code points: ranges in order, apart from each other.
using CharacterSet = std::vector<std::pair<uint32_t, uint32_t>>;

CharacterSet ordered(CharacterSet set) {
    std::sort(set.begin(), set.end());
    CharacterSet result;
    for (const auto& [first, last] : set) {
        if (!result.empty() && first <= result.back().second + 1)
            result.back().second = std::max(result.back().second, last);
        else
            result.emplace_back(first, last);
    }
    return result;
}

CharacterSet of_class(const EbnfExpression& expression) {
    CharacterSet set = ordered(expression.ranges);
    if (!expression.is_negated) return set;
    CharacterSet others;
    uint32_t begin = 0;
    for (const auto& [first, last] : set) {
        if (first > begin) others.emplace_back(begin, first - 1);
        begin = last + 1;
    }
    if (begin <= last_code_point) others.emplace_back(begin, last_code_point);
    return others;
}

CharacterSet united(CharacterSet a, const CharacterSet& b) {
    a.insert(a.end(), b.begin(), b.end());
    return ordered(std::move(a));
}

bool have_common(const CharacterSet& a, const CharacterSet& b) {
    return std::any_of(a.begin(), a.end(), [&](const auto& one) {
        return std::any_of(b.begin(), b.end(), [&](const auto& other) {
            return one.first <= other.second && other.first <= one.second;
        });
    });
}

/// What is known of the texts of a regular expression. Where two of its characters compete for the
/// next one of a text (it is not "one-unambiguous"), anything may extend a text.
struct Regular {
    bool is_nullable = true;
    CharacterSet first;      ///< begin a text
    CharacterSet later;      ///< stand behind the first character of one
    CharacterSet extending;  ///< a whole text and one of these begin another text

    void compete() { extending = {{0, last_code_point}}; }
};

Regular joined(Regular a, const Regular& b) {
    const bool competes =
        have_common(a.extending, b.first) || (a.is_nullable && have_common(a.first, b.first));
    if (!a.first.empty()) a.later = united(a.later, b.first);
    a.later = united(a.later, b.later);
    a.extending = b.is_nullable ? united(united(a.extending, b.first), b.extending) : b.extending;
    if (a.is_nullable) a.first = united(a.first, b.first);
    a.is_nullable = a.is_nullable && b.is_nullable;
    if (competes) a.compete();
    return a;
}

Regular either(Regular a, const Regular& b) {
    const bool competes = have_common(a.first, b.first);
    a.first = united(a.first, b.first);
    a.later = united(a.later, b.later);
    a.extending = united(a.extending, b.extending);
    a.is_nullable = a.is_nullable || b.is_nullable;
    if (competes) a.compete();
    return a;
}

/// Bounds count as none: that allows more texts.
Regular repeated(Regular one, const EbnfExpression& bounds) {
    if (bounds.most == 0) return {};
    one.is_nullable = one.is_nullable || bounds.least == 0;
    if (bounds.most == 1) return one;
    const bool competes = have_common(one.extending, one.first);
    one.later = united(one.later, one.first);
    one.extending = united(one.extending, one.first);
    if (competes) one.compete();
    return one;
}

/// The regular parts of a grammar.
class RegularParts {
public:
    explicit RegularParts(const EbnfGrammar& grammar) : m_grammar(grammar) {}

    Regular of(const EbnfExpression& expression) {
        Regular result;
        switch (expression.kind) {
            case Kind::CHARACTERS:
                return {false, of_class(expression), {}, {}};
            case Kind::RULE: {
                const auto known = m_rules.find(expression.rule);
                if (known != m_rules.end()) return known->second;
                result = of(m_grammar.rules.at(expression.rule));
                m_rules[expression.rule] = result;
                return result;
            }
            case Kind::SEQUENCE:
                for (const EbnfExpression& part : expression.parts)
                    result = joined(std::move(result), of(part));
                return result;
            case Kind::CHOICE:
                result = of(expression.parts[0]);
                for (size_t i = 1; i < expression.parts.size(); ++i)
                    result = either(std::move(result), of(expression.parts[i]));
                return result;
            case Kind::REPEAT:
                return repeated(of(expression.parts[0]), expression);
        }
        return result;
    }

private:
    const EbnfGrammar& m_grammar;
    std::map<std::string, Regular> m_rules;
};

using Terminals = std::set<size_t>;

/// Whether a text of `shorter` and a character of `follow` may begin a text of `longer`.
bool may_take_more(const Regular& longer, const Regular& shorter, bool are_same,
                   const CharacterSet& follow) {
    if (are_same) return have_common(longer.extending, follow);
    return have_common(longer.first, shorter.first) && have_common(longer.later, follow);
}

/// Finds terminals of which the lexer would take too much, by FIRST and FOLLOW sets.
class LongestMatches {
public:
    LongestMatches(const std::vector<Symbol>& symbols, RegularParts& parts)
        : m_sets(symbols.size()) {
        for (size_t i = 0; i < symbols.size(); ++i) {
            const EbnfExpression& expression = *symbols[i].expression;
            if (symbols[i].is_terminal) {
                m_sets[i] = {
                    m_regular.emplace(i, parts.of(expression)).first->second.is_nullable, {i}, {}};
            } else if (expression.kind == Kind::CHOICE || expression.kind == Kind::REPEAT) {
                for (const size_t part : symbols[i].parts) m_productions.push_back({i, {part}});
                const bool repeats = expression.kind == Kind::REPEAT;
                if (repeats && expression.least == 0) m_productions.push_back({i, {}});
                if (repeats && expression.most > 1) m_productions.push_back({i, {i, i}});
            } else {
                m_productions.push_back({i, symbols[i].parts});
            }
        }
    }

    /// Their indices.
    Terminals too_long() {
        while (find_first()) {
        }
        while (find_follow()) {
        }
        // Places are what may begin there. A text may be one of several terminals: then anything
        // that follows one of them may come.
        std::vector<Terminals> places{m_sets[0].first};
        std::set<Terminals> known{places[0]};
        Terminals found;
        for (size_t i = 0; i < places.size() && i < most_places; ++i)
            for (const size_t shorter : Terminals(places[i])) {
                const Terminals next = behind(shorter, places[i]);
                check(shorter, next, places[i], found);
                if (known.insert(next).second) places.push_back(next);
            }
        return found;
    }

private:
    struct Sets {
        bool is_nullable = false;
        Terminals first, follow;
    };
    struct Production {
        size_t symbol;
        std::vector<size_t> parts;
    };

    static bool add(Terminals& set, const Terminals& more) {
        const size_t before = set.size();
        set.insert(more.begin(), more.end());
        return set.size() > before;
    }

    bool find_first() {
        bool has_grown = false;
        for (auto each = m_productions.rbegin(); each != m_productions.rend(); ++each) {
            Sets& whole = m_sets[each->symbol];
            bool is_nullable = true;
            for (size_t i = 0; i < each->parts.size() && is_nullable; ++i) {
                has_grown = add(whole.first, m_sets[each->parts[i]].first) || has_grown;
                is_nullable = m_sets[each->parts[i]].is_nullable;
            }
            has_grown = has_grown || (is_nullable && !whole.is_nullable);
            whole.is_nullable = whole.is_nullable || is_nullable;
        }
        return has_grown;
    }

    bool find_follow() {
        bool has_grown = false;
        for (const Production& each : m_productions) {
            Terminals behind = m_sets[each.symbol].follow;
            for (auto part = each.parts.rbegin(); part != each.parts.rend(); ++part) {
                Sets& sets = m_sets[*part];
                has_grown = add(sets.follow, behind) || has_grown;
                if (!sets.is_nullable) behind.clear();
                add(behind, sets.first);
            }
        }
        return has_grown;
    }

    /// What may begin behind a text of the terminal, at a place where all of `together` may begin.
    Terminals behind(size_t terminal, const Terminals& together) const {
        Terminals next;
        for (const size_t each : together)
            if (have_common(m_regular.at(each).first, m_regular.at(terminal).first))
                add(next, m_sets[each].follow);
        return next;
    }

    void check(size_t shorter, const Terminals& next, const Terminals& together,
               Terminals& found) const {
        CharacterSet follow;
        for (const size_t each : next) follow = united(follow, m_regular.at(each).first);
        for (const size_t longer : together)
            if (may_take_more(m_regular.at(longer), m_regular.at(shorter), longer == shorter,
                              follow))
                found.insert(longer);
    }

    std::map<size_t, Regular> m_regular;  // of the terminals
    std::vector<Sets> m_sets;
    std::vector<Production> m_productions;  // those of the whole before those of parts
};

using References = std::set<std::string>;

void collect(const EbnfGrammar& grammar, const EbnfExpression& expression, References& found) {
    if (expression.kind == Kind::RULE) {
        if (grammar.rules.count(expression.rule) == 0)
            throw GrammarError(concat("EBNF, line ", expression.line, ", column ",
                                      expression.column, ": rule '", expression.rule,
                                      "' is not defined"));
        found.insert(expression.rule);
    }
    for (const EbnfExpression& part : expression.parts) collect(grammar, part, found);
}

/// The rules that no recursion is in: those that refer to nothing, then those that refer to
/// these...
std::set<std::string> find_regular(const EbnfGrammar& grammar) {
    std::map<std::string, size_t> open;  // references that are not known to be regular yet
    std::map<std::string, std::vector<std::string>> users;
    std::map<std::string, size_t> depths;
    std::vector<std::string> pending;
    for (const auto& [name, expression] : grammar.rules) {
        References references;
        collect(grammar, expression, references);
        open[name] = references.size();
        for (const std::string& each : references) users[each].push_back(name);
        if (references.empty()) pending.push_back(name);
    }
    std::set<std::string> regular;
    while (!pending.empty()) {
        const std::string name = pending.back();
        pending.pop_back();
        regular.insert(name);
        const size_t depth = depths[name] += grammar.rules.at(name).depth;
        if (depth > most_depth)
            throw GrammarError(concat("EBNF: rule '", name, "' and those in it are more than ",
                                      most_depth, " deep"));
        for (const std::string& user : users[name]) {
            depths[user] = std::max(depths[user], depth);
            if (--open[user] == 0) pending.push_back(user);
        }
    }
    return regular;
}

/// Makes one part of neighbours that are regular.
std::vector<EbnfExpression> with_runs(std::vector<EbnfExpression> parts) {
    std::vector<EbnfExpression> result;
    for (auto begin = parts.begin(); begin != parts.end();) {
        auto end = begin + 1;
        while (end != parts.end() && !begin->is_recursive && !end->is_recursive) ++end;
        EbnfExpression run;
        std::move(begin, end, std::back_inserter(run.parts));
        result.push_back(end - begin == 1 ? std::move(run.parts[0]) : std::move(run));
        begin = end;
    }
    return result;
}

/// Marks the parts in which a rule is that is not regular. What is between them is made one part,
/// so that it can be one terminal.
bool mark_recursive(EbnfExpression& expression, const std::set<std::string>& regular) {
    bool is_recursive = expression.kind == Kind::RULE && regular.count(expression.rule) == 0;
    for (EbnfExpression& part : expression.parts)
        is_recursive = mark_recursive(part, regular) || is_recursive;
    if (is_recursive && expression.kind == Kind::SEQUENCE)
        expression.parts = with_runs(std::move(expression.parts));
    return expression.is_recursive = is_recursive;
}

/// A grammar whose terminals are as large as they can be, but for those that are taken apart.
class Plan {
public:
    Plan(const EbnfGrammar& grammar, const Expressions& apart)
        : m_grammar(grammar), m_apart(apart) {
        index_of({Kind::RULE, "root"});
        for (size_t i = 0; i < m_symbols.size(); ++i) {
            if (m_symbols[i].is_terminal) continue;
            const EbnfExpression& expression = *m_symbols[i].expression;
            std::vector<size_t> parts;
            if (expression.kind == Kind::RULE) parts = {index_of(expression)};
            for (const EbnfExpression& part : expression.parts) parts.push_back(index_of(part));
            m_symbols[i].parts = std::move(parts);
        }
    }

    /// The first is `root`.
    const std::vector<Symbol>& symbols() const { return m_symbols; }

    /// It is too large to look through, or has nothing behind its one terminal.
    bool needs_no_look() const {
        return m_num_terminals > most_terminals || m_num_rules > most_rules ||
               m_symbols.size() == 1;
    }

private:
    /// Of a rule the symbol is its body.
    size_t index_of(const EbnfExpression& given) {
        const EbnfExpression* expression = &given;
        const auto follow = [&] { expression = &m_grammar.rules.at(expression->rule); };
        if (given.kind == Kind::RULE) follow();
        while (expression->kind == Kind::RULE && !expression->is_recursive) follow();
        const auto [known, is_new] = m_indices.emplace(expression, m_symbols.size());
        if (!is_new) return known->second;
        const bool is_whole = !expression->is_recursive && m_apart.count(expression) == 0;
        const bool is_terminal = is_whole || expression->kind == Kind::CHARACTERS;
        if (is_terminal)
            ++m_num_terminals;
        else if (given.kind == Kind::RULE)
            ++m_num_rules;
        m_symbols.push_back({expression, is_terminal});
        return known->second;
    }

    const EbnfGrammar& m_grammar;
    const Expressions& m_apart;
    std::vector<Symbol> m_symbols;
    std::unordered_map<const EbnfExpression*, size_t> m_indices;
    size_t m_num_terminals = 0, m_num_rules = 0;
};

std::string class_regex(const EbnfExpression& characters) {
    if (characters.ranges.empty()) return "/(?s:.)/";
    std::string result = characters.is_negated ? "/[^" : "/[";
    for (const auto& [first, last] : characters.ranges) {
        char range[32];
        std::snprintf(range, sizeof(range), "\\x{%x}-\\x{%x}", unsigned(first), unsigned(last));
        result += range;
    }
    return result + "]/";
}

std::string repetition(const std::string& operand, const EbnfExpression& repeat) {
    if (repeat.most == 0) return "\"\"";
    if (repeat.most == ebnf_unbounded) {
        if (repeat.least == 0) return operand + '*';
        if (repeat.least == 1) return operand + '+';
        return concat(operand, '{', repeat.least, ",}");
    }
    if (repeat.least == 0 && repeat.most == 1) return operand + '?';
    return concat(operand, '{', repeat.least, ',', repeat.most, '}');
}

bool is_one_character(const EbnfExpression& expression) {
    return expression.kind == Kind::CHARACTERS && !expression.is_negated &&
           expression.ranges.size() == 1 &&
           expression.ranges[0].first == expression.ranges[0].second;
}

/// Operands as the body of a CHOICE or SEQUENCE.
std::string body_of(const std::vector<std::string>& operands, Kind kind) {
    std::string body;
    for (const std::string& each : operands)
        body += (body.empty() ? "" : kind == Kind::CHOICE ? " | " : " ") + each;
    return operands.empty() ? lark_string("") : body;
}

class Writer {
public:
    Writer(const EbnfGrammar& grammar, LarkWriter& lark) : m_grammar(grammar), m_lark(lark) {}

    /// Name of the first symbol.
    std::string write(const std::vector<Symbol>& symbols) {
        std::vector<std::string> names;
        for (const Symbol& symbol : symbols)
            names.push_back(symbol.is_terminal ? m_lark.add_terminal(operand(*symbol.expression))
                                               : m_lark.reserve_rule());
        for (size_t i = 0; i < symbols.size(); ++i) {
            const EbnfExpression& expression = *symbols[i].expression;
            std::vector<std::string> parts;
            for (const size_t part : symbols[i].parts) parts.push_back(names[part]);
            if (!symbols[i].is_terminal)
                m_lark.set_rule(names[i], expression.kind == Kind::REPEAT
                                              ? repetition(parts[0], expression)
                                              : body_of(parts, expression.kind));
        }
        return names[0];
    }

private:
    /// An expression in a terminal.
    std::string operand(const EbnfExpression& expression) {
        if (expression.kind == Kind::CHARACTERS) return class_regex(expression);
        if (expression.kind == Kind::RULE) return shared_terminal(expression.rule);
        if (expression.kind == Kind::REPEAT)
            return m_lark.add_terminal(repetition(operand(expression.parts[0]), expression));
        const auto operands = operands_of(expression);
        if (operands.size() == 1) return operands[0];
        return m_lark.add_terminal(body_of(operands, expression.kind));
    }

    /// Characters of a sequence that are neighbours are one text.
    std::vector<std::string> operands_of(const EbnfExpression& expression) {
        std::vector<std::string> operands;
        std::string text;
        const auto end_text = [&] {
            if (!text.empty()) operands.push_back(lark_string(text));
            text.clear();
        };
        for (const EbnfExpression& part : expression.parts) {
            if (expression.kind == Kind::SEQUENCE && is_one_character(part)) {
                append_utf8(text, part.ranges[0].first);
                continue;
            }
            end_text();
            operands.push_back(operand(part));
        }
        end_text();
        return operands;
    }

    /// The terminal of a rule that is regular.
    std::string shared_terminal(const std::string& rule) {
        const auto known = m_shared.find(rule);
        if (known != m_shared.end()) return known->second;
        return m_shared[rule] = m_lark.add_terminal(operand(m_grammar.rules.at(rule)));
    }

    const EbnfGrammar& m_grammar;
    LarkWriter& m_lark;
    std::map<std::string, std::string> m_shared;  // terminals of the grammar's rules
};

}  // namespace

std::string ebnf_to_lark(const std::string& text, LarkWriter& lark, const GrammarLimits& limits) {
    EbnfGrammar grammar = parse_ebnf(text, limits);
    const std::set<std::string> regular = find_regular(grammar);
    for (auto& [name, expression] : grammar.rules) mark_recursive(expression, regular);
    RegularParts parts(grammar);
    Expressions apart;
    for (size_t round = 0;; ++round) {
        const Plan plan(grammar, apart);
        Terminals too_long;
        if (round < most_rounds && !plan.needs_no_look())
            too_long = LongestMatches(plan.symbols(), parts).too_long();
        if (too_long.empty()) return Writer(grammar, lark).write(plan.symbols());
        for (const size_t index : too_long) apart.insert(plan.symbols()[index].expression);
    }
}

}  // namespace pagewheel
