// EBNF as Lark. What is regular becomes terminals as large as they can be without changing the
// grammar: llguidance's lexer takes the longest match, so where that would be too much, a part is
// taken apart, in the end into characters. Without this `root ::= "a"* x` with a recursive
// `x ::= "ab" | "(" x ")"` would not accept "aab", as tests/python/grammar/test_ebnf.py finds.
#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
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

/// A terminal: expressions without recursion, one after the other.
using EbnfTerminal = std::vector<const EbnfExpression*>;

/// A grammar over terminals. Their expressions are the grammar's, which must live as long.
struct EbnfPlan {
    std::vector<EbnfTerminal> terminals;
    std::vector<EbnfExpression> rules;  ///< with indices in RULE and TERMINAL; the first is root
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

    Regular of(const EbnfTerminal& terminal) {
        Regular all;
        for (const EbnfExpression* each : terminal) all = joined(std::move(all), of(*each));
        return all;
    }

private:
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
            case Kind::TERMINAL:
                break;  // only in plans
        }
        return result;
    }

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

/// Finds terminals of which the lexer would take too much, by the FIRST and FOLLOW sets of the
/// plan's productions. Symbols are the terminals, the rules, and then the parts of rules.
class LongestMatches {
public:
    LongestMatches(const EbnfPlan& plan, RegularParts& parts)
        : m_num_terminals(plan.terminals.size()) {
        for (size_t i = 0; i < m_num_terminals; ++i) {
            m_regular.push_back(parts.of(plan.terminals[i]));
            m_symbols.push_back({m_regular[i].is_nullable, {i}, {}});
        }
        m_symbols.resize(m_num_terminals + plan.rules.size());
        for (size_t i = 0; i < plan.rules.size(); ++i)
            m_productions.push_back({m_num_terminals + i, {symbol_of(plan.rules[i])}});
    }

    /// Their indices.
    Terminals too_long() {
        while (find_first()) {
        }
        while (find_follow()) {
        }
        std::set<Terminals> places{m_symbols[m_num_terminals].first};  // of root
        for (size_t i = 0; i < m_num_terminals; ++i) places.insert(m_symbols[i].follow);
        Terminals found;
        for (const Terminals& together : places) check_together(together, found);
        return found;
    }

private:
    struct Symbol {
        bool is_nullable = false;
        Terminals first, follow;
    };
    struct Production {
        size_t symbol;
        std::vector<size_t> parts;
    };

    size_t symbol_of(const EbnfExpression& node) {
        if (node.kind == Kind::TERMINAL) return node.index;
        if (node.kind == Kind::RULE) return m_num_terminals + node.index;
        std::vector<size_t> parts;
        for (const EbnfExpression& part : node.parts) parts.push_back(symbol_of(part));
        const size_t symbol = m_symbols.size();
        m_symbols.emplace_back();
        if (node.kind == Kind::SEQUENCE) {
            m_productions.push_back({symbol, parts});
            return symbol;
        }
        for (const size_t part : parts) m_productions.push_back({symbol, {part}});
        if (node.kind == Kind::REPEAT && node.least == 0) m_productions.push_back({symbol, {}});
        if (node.kind == Kind::REPEAT && node.most > 1)
            m_productions.push_back({symbol, {symbol, symbol}});
        return symbol;
    }

    static bool add(Terminals& set, const Terminals& more) {
        const size_t before = set.size();
        set.insert(more.begin(), more.end());
        return set.size() > before;
    }

    bool find_first() {
        bool has_grown = false;
        for (const Production& each : m_productions) {
            Symbol& whole = m_symbols[each.symbol];
            bool is_nullable = true;
            for (size_t i = 0; i < each.parts.size() && is_nullable; ++i) {
                has_grown = add(whole.first, m_symbols[each.parts[i]].first) || has_grown;
                is_nullable = m_symbols[each.parts[i]].is_nullable;
            }
            has_grown = has_grown || (is_nullable && !whole.is_nullable);
            whole.is_nullable = whole.is_nullable || is_nullable;
        }
        return has_grown;
    }

    bool find_follow() {
        bool has_grown = false;
        for (auto each = m_productions.rbegin(); each != m_productions.rend(); ++each) {
            Terminals behind = m_symbols[each->symbol].follow;
            for (auto part = each->parts.rbegin(); part != each->parts.rend(); ++part) {
                Symbol& symbol = m_symbols[*part];
                has_grown = add(symbol.follow, behind) || has_grown;
                if (!symbol.is_nullable) behind.clear();
                add(behind, symbol.first);
            }
        }
        return has_grown;
    }

    /// Looks at terminals that may begin at one place of a text.
    void check_together(const Terminals& together, Terminals& found) const {
        for (const size_t shorter : together) {
            CharacterSet follow;
            for (const size_t each : m_symbols[shorter].follow)
                follow = united(follow, m_regular[each].first);
            for (const size_t longer : together)
                if (may_take_more(m_regular[longer], m_regular[shorter], longer == shorter, follow))
                    found.insert(longer);
        }
    }

    const size_t m_num_terminals;
    std::vector<Regular> m_regular;  // of the terminals
    std::vector<Symbol> m_symbols;
    std::vector<Production> m_productions;  // those of parts before those of the whole
};

/// None for a grammar that is too large to look through.
Terminals find_too_long(const EbnfPlan& plan, RegularParts& parts) {
    const bool is_large = plan.terminals.size() > most_terminals || plan.rules.size() > most_rules;
    const bool is_one = plan.terminals.size() == 1 && plan.rules[0].kind == Kind::TERMINAL;
    return is_large || is_one ? Terminals() : LongestMatches(plan, parts).too_long();
}

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

using Expressions = std::unordered_set<const EbnfExpression*>;

/// Adds the parts in which a rule is that is not regular; whether the whole is one of them.
bool find_recursive(const EbnfExpression& expression, const std::set<std::string>& regular,
                    Expressions& found) {
    bool is_recursive = expression.kind == Kind::RULE && regular.count(expression.rule) == 0;
    for (const EbnfExpression& part : expression.parts)
        is_recursive = find_recursive(part, regular, found) || is_recursive;
    if (is_recursive) found.insert(&expression);
    return is_recursive;
}

/// Makes terminals as large as they can be, but for those that must be taken apart.
class Planner {
public:
    Planner(const EbnfGrammar& grammar, const Expressions& recursive,
            const std::set<EbnfTerminal>& apart)
        : m_grammar(grammar), m_recursive(recursive), m_apart(apart) {}

    EbnfPlan plan() {
        rule("root");
        for (size_t i = 0; i < m_names.size(); ++i) {
            EbnfExpression body = node(m_grammar.rules.at(m_names[i]));
            m_plan.rules.push_back(std::move(body));
        }
        return std::move(m_plan);
    }

private:
    bool is_regular(const EbnfExpression& expression) const {
        return m_recursive.count(&expression) == 0;
    }

    EbnfExpression node(const EbnfExpression& expression) {
        return is_regular(expression) ? regular({&expression}) : in_parts(expression);
    }

    EbnfExpression regular(const EbnfTerminal& parts) {
        if (m_apart.count(parts) == 0) {
            const bool is_rule = parts.size() == 1 && parts[0]->kind == Kind::RULE;
            const auto body = is_rule ? EbnfTerminal{&m_grammar.rules.at(parts[0]->rule)} : parts;
            if (!is_rule || m_apart.count(body) == 0) return terminal(body);
        }
        if (parts.size() == 1) return in_parts(*parts[0]);
        EbnfExpression result;
        for (const EbnfExpression* part : parts) result.parts.push_back(regular({part}));
        return result;
    }

    EbnfExpression in_parts(const EbnfExpression& expression) {
        if (expression.kind == Kind::CHARACTERS) return terminal({&expression});
        if (expression.kind == Kind::RULE) return rule(expression.rule);
        EbnfExpression result;
        result.kind = expression.kind;
        result.least = expression.least;
        result.most = expression.most;
        const bool has_runs = expression.kind == Kind::SEQUENCE && !is_regular(expression);
        EbnfTerminal run;  // neighbours that are regular become one terminal
        const auto end_run = [&] {
            if (!run.empty()) result.parts.push_back(regular(run));
            run.clear();
        };
        for (const EbnfExpression& part : expression.parts) {
            if (has_runs && is_regular(part)) {
                run.push_back(&part);
                continue;
            }
            end_run();
            result.parts.push_back(node(part));
        }
        end_run();
        return result;
    }

    EbnfExpression terminal(const EbnfTerminal& parts) {
        const auto [known, is_new] = m_terminals.emplace(parts, m_plan.terminals.size());
        if (is_new) m_plan.terminals.push_back(parts);
        return reference(Kind::TERMINAL, known->second);
    }

    EbnfExpression rule(const std::string& name) {
        const auto [known, is_new] = m_rules.emplace(name, m_names.size());
        if (is_new) m_names.push_back(name);
        return reference(Kind::RULE, known->second);
    }

    static EbnfExpression reference(Kind kind, size_t index) {
        EbnfExpression result;
        result.kind = kind;
        result.index = index;
        return result;
    }

    const EbnfGrammar& m_grammar;
    const Expressions& m_recursive;
    const std::set<EbnfTerminal>& m_apart;
    EbnfPlan m_plan;
    std::map<EbnfTerminal, size_t> m_terminals;
    std::map<std::string, size_t> m_rules;
    std::vector<std::string> m_names;  // of m_plan.rules
};

/// Throws GrammarError.
EbnfPlan plan_ebnf(const EbnfGrammar& grammar) {
    const std::set<std::string> regular = find_regular(grammar);
    Expressions recursive;
    for (const auto& [name, expression] : grammar.rules)
        find_recursive(expression, regular, recursive);
    std::set<EbnfTerminal> apart;
    RegularParts parts(grammar);
    for (size_t round = 0;; ++round) {
        EbnfPlan plan = Planner(grammar, recursive, apart).plan();
        const Terminals too_long = round < most_rounds ? find_too_long(plan, parts) : Terminals();
        if (too_long.empty()) return plan;
        for (const size_t index : too_long) apart.insert(plan.terminals[index]);
    }
}

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

class Writer {
public:
    Writer(const EbnfGrammar& grammar, LarkWriter& lark) : m_grammar(grammar), m_lark(lark) {}

    std::string write(const EbnfPlan& plan) {
        for (const auto& terminal : plan.terminals) {
            std::string body;
            for (const EbnfExpression* part : terminal) body += operand(*part, true) + ' ';
            m_terminals.push_back(m_lark.add_terminal(body));
        }
        for (size_t i = 0; i < plan.rules.size(); ++i) m_rules.push_back(m_lark.reserve_rule());
        for (size_t i = 0; i < plan.rules.size(); ++i)
            m_lark.set_rule(m_rules[i], operand(plan.rules[i], false));
        return m_rules[0];
    }

private:
    std::string operand(const EbnfExpression& expression, bool is_in_terminal) {
        std::string body;
        switch (expression.kind) {
            case Kind::CHARACTERS:
                return class_regex(expression);
            case Kind::TERMINAL:
                return m_terminals[expression.index];
            case Kind::RULE:
                return is_in_terminal ? shared_terminal(expression.rule)
                                      : m_rules[expression.index];
            case Kind::REPEAT:
                body = repetition(operand(expression.parts[0], is_in_terminal), expression);
                break;
            case Kind::SEQUENCE:
            case Kind::CHOICE: {
                const auto operands = operands_of(expression, is_in_terminal);
                if (operands.size() == 1) return operands[0];
                for (const std::string& each : operands) {
                    if (!body.empty()) body += expression.kind == Kind::CHOICE ? " | " : " ";
                    body += each;
                }
            }
        }
        return is_in_terminal ? m_lark.add_terminal(body) : m_lark.add_rule(body);
    }

    /// Characters of a sequence that are neighbours are one text.
    std::vector<std::string> operands_of(const EbnfExpression& expression, bool is_in_terminal) {
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
            operands.push_back(operand(part, is_in_terminal));
        }
        end_text();
        if (operands.empty()) operands.push_back(lark_string(""));
        return operands;
    }

    /// The terminal of a rule that is regular.
    std::string shared_terminal(const std::string& rule) {
        const auto known = m_shared.find(rule);
        if (known != m_shared.end()) return known->second;
        return m_shared[rule] = m_lark.add_terminal(operand(m_grammar.rules.at(rule), true));
    }

    const EbnfGrammar& m_grammar;
    LarkWriter& m_lark;
    std::map<std::string, std::string> m_shared;    // terminals of the grammar's rules
    std::vector<std::string> m_terminals, m_rules;  // names
};

}  // namespace

std::string ebnf_to_lark(const std::string& text, LarkWriter& lark, const GrammarLimits& limits) {
    const EbnfGrammar grammar = parse_ebnf(text, limits);
    return Writer(grammar, lark).write(plan_ebnf(grammar));
}

}  // namespace pagewheel
