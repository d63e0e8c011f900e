// EBNF as Lark. What is regular becomes terminals as large as they can be without changing the
// grammar: llguidance's lexer takes the longest match, so where that would be too much, a part is
// taken apart, in the end into characters. Without this `root ::= "a"* x` with a recursive
// `x ::= "ab" | "(" x ")"` would not accept "aab", as tests/python/grammar/test_ebnf.py finds.
#include <algorithm>
#include <cstdio>
#include <deque>
#include <map>
#include <set>
#include <unordered_set>

#include "base/check.hpp"
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

struct EbnfNode {
    enum class Kind { TERMINAL, RULE, SEQUENCE, CHOICE, REPEAT };
    Kind kind = Kind::SEQUENCE;
    size_t index = 0;                        ///< of TERMINAL and RULE
    std::vector<EbnfNode> parts;             ///< of SEQUENCE, CHOICE; one of REPEAT
    const EbnfExpression* bounds = nullptr;  ///< of REPEAT
};

/// Its expressions are the grammar's, which must live as long.
struct EbnfPlan {
    std::vector<EbnfTerminal> terminals;
    std::vector<EbnfNode> rules;            ///< the first is root
    std::deque<EbnfExpression> characters;  ///< those of texts that were taken apart
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
            case Kind::TEXT:
                for (const uint32_t code : code_points(expression.text))
                    result = joined(std::move(result), {false, {{code, code}}, {}, {}});
                return result;
            case Kind::CHARACTERS:
                return {false, of_class(expression), {}, {}};
            case Kind::RULE: {
                const auto known = m_rules.find(expression.text);
                if (known != m_rules.end()) return known->second;
                result = of(m_grammar.rules.at(expression.text));
                m_rules[expression.text] = result;
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

    const EbnfGrammar& m_grammar;
    std::map<std::string, Regular> m_rules;
};

using Terminals = std::set<size_t>;

/// What a piece of the grammar begins with, and whether it may be nothing.
struct Begin {
    Terminals terminals;
    bool is_nullable = false;
};

/// Whether a text of `shorter` and a character of `follow` may begin a text of `longer`.
bool may_take_more(const Regular& longer, const Regular& shorter, bool are_same,
                   const CharacterSet& follow) {
    if (are_same) return have_common(longer.extending, follow);
    return have_common(longer.first, shorter.first) && have_common(longer.later, follow);
}

/// Finds terminals of which the lexer would take too much.
class LongestMatches {
public:
    LongestMatches(const EbnfPlan& plan, RegularParts& parts)
        : m_plan(plan),
          m_begins(plan.rules.size()),
          m_rule_follows(plan.rules.size()),
          m_follows(plan.terminals.size()) {
        for (const EbnfTerminal& terminal : plan.terminals) m_regular.push_back(parts.of(terminal));
    }

    /// Their indices.
    Terminals too_long() {
        for (bool has_grown = true; has_grown;) {
            has_grown = false;
            for (size_t i = 0; i < m_plan.rules.size(); ++i) {
                const Begin begin = begin_of(m_plan.rules[i]);
                has_grown = add(m_begins[i].terminals, begin.terminals) || has_grown;
                has_grown = has_grown || begin.is_nullable != m_begins[i].is_nullable;
                m_begins[i].is_nullable = begin.is_nullable;
            }
        }
        for (bool has_grown = true; has_grown;) {
            has_grown = false;
            for (size_t i = 0; i < m_plan.rules.size(); ++i)
                has_grown = spread(m_plan.rules[i], Terminals(m_rule_follows[i])) || has_grown;
        }
        Terminals found;
        std::set<Terminals> places(m_follows.begin(), m_follows.end());
        places.insert(m_begins[0].terminals);
        for (const Terminals& together : places) check_together(together, found);
        return found;
    }

private:
    Begin begin_of(const EbnfNode& node) const {
        Begin result;
        switch (node.kind) {
            case EbnfNode::Kind::TERMINAL:
                return {{node.index}, m_regular[node.index].is_nullable};
            case EbnfNode::Kind::RULE:
                return m_begins[node.index];
            case EbnfNode::Kind::SEQUENCE:
                result.is_nullable = true;
                for (const EbnfNode& part : node.parts) {
                    const Begin begin = begin_of(part);
                    add(result.terminals, begin.terminals);
                    if (begin.is_nullable) continue;
                    result.is_nullable = false;
                    break;
                }
                return result;
            case EbnfNode::Kind::CHOICE:
                for (const EbnfNode& part : node.parts) {
                    const Begin begin = begin_of(part);
                    add(result.terminals, begin.terminals);
                    result.is_nullable = result.is_nullable || begin.is_nullable;
                }
                return result;
            case EbnfNode::Kind::REPEAT:
                result = begin_of(node.parts[0]);
                result.is_nullable = result.is_nullable || node.bounds->least == 0;
                return result;
        }
        return result;
    }

    static bool add(Terminals& set, const Terminals& more) {
        const size_t before = set.size();
        set.insert(more.begin(), more.end());
        return set.size() > before;
    }

    /// Notes what may come behind each terminal of the node, which `follow` comes behind.
    bool spread(const EbnfNode& node, const Terminals& follow) {
        bool has_grown = false;
        Terminals behind = follow;
        switch (node.kind) {
            case EbnfNode::Kind::TERMINAL:
                return add(m_follows[node.index], follow);
            case EbnfNode::Kind::RULE:
                return add(m_rule_follows[node.index], follow);
            case EbnfNode::Kind::SEQUENCE:
                for (auto part = node.parts.rbegin(); part != node.parts.rend(); ++part) {
                    has_grown = spread(*part, behind) || has_grown;
                    const Begin begin = begin_of(*part);
                    if (!begin.is_nullable) behind.clear();
                    add(behind, begin.terminals);
                }
                return has_grown;
            case EbnfNode::Kind::REPEAT:
                if (node.bounds->most > 1) add(behind, begin_of(node.parts[0]).terminals);
                return spread(node.parts[0], behind);
            case EbnfNode::Kind::CHOICE:
                for (const EbnfNode& part : node.parts)
                    has_grown = spread(part, follow) || has_grown;
                return has_grown;
        }
        return has_grown;
    }

    /// Looks at terminals that may begin at one place of a text.
    void check_together(const Terminals& together, Terminals& found) const {
        for (const size_t shorter : together) {
            CharacterSet follow;
            for (const size_t each : m_follows[shorter])
                follow = united(follow, m_regular[each].first);
            for (const size_t longer : together)
                if (may_take_more(m_regular[longer], m_regular[shorter], longer == shorter, follow))
                    found.insert(longer);
        }
    }

    const EbnfPlan& m_plan;
    std::vector<Regular> m_regular;
    std::vector<Begin> m_begins;            // of rules
    std::vector<Terminals> m_rule_follows;  // what comes behind a rule
    std::vector<Terminals> m_follows;       // behind a terminal
};

/// None for a grammar that is too large to look through.
Terminals find_too_long(const EbnfPlan& plan, RegularParts& parts) {
    const bool is_large = plan.terminals.size() > most_terminals || plan.rules.size() > most_rules;
    const bool is_one =
        plan.terminals.size() == 1 && plan.rules[0].kind == EbnfNode::Kind::TERMINAL;
    return is_large || is_one ? Terminals() : LongestMatches(plan, parts).too_long();
}

using References = std::set<std::string>;

void collect(const EbnfGrammar& grammar, const EbnfExpression& expression, References& found) {
    if (expression.kind == Kind::RULE) {
        if (grammar.rules.count(expression.text) == 0)
            throw GrammarError(concat("EBNF, line ", expression.line, ", column ",
                                      expression.column, ": rule '", expression.text,
                                      "' is not defined"));
        found.insert(expression.text);
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
    bool is_recursive = expression.kind == Kind::RULE && regular.count(expression.text) == 0;
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
            EbnfNode body = node(m_grammar.rules.at(m_names[i]));
            m_plan.rules.push_back(std::move(body));
        }
        return std::move(m_plan);
    }

private:
    bool is_regular(const EbnfExpression& expression) const {
        return m_recursive.count(&expression) == 0;
    }

    EbnfNode node(const EbnfExpression& expression) {
        return is_regular(expression) ? regular({&expression}) : in_parts(expression);
    }

    EbnfNode regular(const EbnfTerminal& parts) {
        if (m_apart.count(parts) == 0) {
            const bool is_rule = parts.size() == 1 && parts[0]->kind == Kind::RULE;
            const auto body = is_rule ? EbnfTerminal{&m_grammar.rules.at(parts[0]->text)} : parts;
            if (!is_rule || m_apart.count(body) == 0) return terminal(body);
        }
        if (parts.size() == 1) return in_parts(*parts[0]);
        EbnfNode result;
        for (const EbnfExpression* part : parts) result.parts.push_back(regular({part}));
        return result;
    }

    EbnfNode in_parts(const EbnfExpression& expression) {
        EbnfNode result;
        switch (expression.kind) {
            case Kind::TEXT:
                return characters(expression.text);
            case Kind::CHARACTERS:
                return terminal({&expression});
            case Kind::RULE:
                return rule(expression.text);
            case Kind::SEQUENCE:
                if (!is_regular(expression)) return sequence(expression);
                break;
            case Kind::CHOICE:
                result.kind = EbnfNode::Kind::CHOICE;
                break;
            case Kind::REPEAT:
                result.kind = EbnfNode::Kind::REPEAT;
                result.bounds = &expression;
                break;
        }
        for (const EbnfExpression& part : expression.parts) result.parts.push_back(node(part));
        return result;
    }

    /// Neighbours that are regular become one terminal.
    EbnfNode sequence(const EbnfExpression& expression) {
        EbnfNode result;
        EbnfTerminal run;
        const auto end_run = [&] {
            if (!run.empty()) result.parts.push_back(regular(run));
            run.clear();
        };
        for (const EbnfExpression& part : expression.parts) {
            if (is_regular(part)) {
                run.push_back(&part);
            } else {
                end_run();
                result.parts.push_back(node(part));
            }
        }
        end_run();
        return result;
    }

    EbnfNode terminal(const EbnfTerminal& parts) {
        const auto [known, is_new] = m_terminals.emplace(parts, m_plan.terminals.size());
        if (is_new) m_plan.terminals.push_back(parts);
        return {EbnfNode::Kind::TERMINAL, known->second, {}, nullptr};
    }

    EbnfNode rule(const std::string& name) {
        const auto [known, is_new] = m_rules.emplace(name, m_names.size());
        if (is_new) m_names.push_back(name);
        return {EbnfNode::Kind::RULE, known->second, {}, nullptr};
    }

    EbnfNode characters(const std::string& text) {
        EbnfNode result;
        for (const uint32_t code : code_points(text)) {
            EbnfExpression one;
            one.kind = Kind::CHARACTERS;
            one.ranges = {{code, code}};
            m_plan.characters.push_back(one);
            result.parts.push_back(terminal({&m_plan.characters.back()}));
        }
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

class Writer {
public:
    Writer(const EbnfGrammar& grammar, LarkWriter& lark) : m_grammar(grammar), m_lark(lark) {}

    std::string write(const EbnfPlan& plan) {
        for (const auto& terminal : plan.terminals) {
            std::string body;
            for (const EbnfExpression* part : terminal) body += operand(*part) + ' ';
            m_terminals.push_back(m_lark.add_terminal(body));
        }
        for (size_t i = 0; i < plan.rules.size(); ++i) m_rules.push_back(m_lark.reserve_rule());
        for (size_t i = 0; i < plan.rules.size(); ++i)
            m_lark.set_rule(m_rules[i], operand(plan.rules[i]));
        return m_rules[0];
    }

private:
    /// As an operand of a terminal.
    std::string operand(const EbnfExpression& expression) {
        std::string body;
        switch (expression.kind) {
            case Kind::TEXT:
                return lark_string(expression.text);
            case Kind::CHARACTERS:
                return class_regex(expression);
            case Kind::RULE: {
                const auto known = m_shared.find(expression.text);
                if (known != m_shared.end()) return known->second;
                const std::string name =
                    m_lark.add_terminal(operand(m_grammar.rules.at(expression.text)));
                return m_shared[expression.text] = name;
            }
            case Kind::REPEAT:
                return m_lark.add_terminal(repetition(operand(expression.parts[0]), expression));
            case Kind::SEQUENCE:
            case Kind::CHOICE:
                for (const EbnfExpression& part : expression.parts) {
                    if (!body.empty()) body += expression.kind == Kind::CHOICE ? " | " : " ";
                    body += operand(part);
                }
                return m_lark.add_terminal(body);
        }
        return body;
    }

    /// As an operand of a rule.
    std::string operand(const EbnfNode& node) {
        std::string body;
        switch (node.kind) {
            case EbnfNode::Kind::TERMINAL:
                return m_terminals[node.index];
            case EbnfNode::Kind::RULE:
                return m_rules[node.index];
            case EbnfNode::Kind::REPEAT:
                return m_lark.add_rule(repetition(operand(node.parts[0]), *node.bounds));
            case EbnfNode::Kind::SEQUENCE:
            case EbnfNode::Kind::CHOICE:
                for (const EbnfNode& part : node.parts) {
                    if (!body.empty()) body += node.kind == EbnfNode::Kind::CHOICE ? " | " : " ";
                    body += operand(part);
                }
                return m_lark.add_rule(body);
        }
        return body;
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
