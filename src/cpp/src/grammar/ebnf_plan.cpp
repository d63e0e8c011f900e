#include "grammar/ebnf_plan.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_set>

#include "base/check.hpp"
#include "grammar/ebnf_overruns.hpp"
#include "pagewheel/grammar_matcher.hpp"

namespace pagewheel {
namespace {

using Kind = EbnfExpression::Kind;

constexpr size_t most_depth = 1000;  // of rules and parentheses that lie in a terminal
constexpr size_t most_rounds = 200;

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

class Planner {
public:
    Planner(const EbnfGrammar& grammar, const Expressions& recursive,
            const std::set<EbnfTerminal>& apart)
        : m_grammar(grammar), m_recursive(recursive), m_apart(apart) {}

    EbnfPlan plan();

private:
    bool is_regular(const EbnfExpression& expression) const {
        return m_recursive.count(&expression) == 0;
    }
    EbnfNode node(const EbnfExpression& expression);
    EbnfNode regular(EbnfTerminal parts);
    EbnfNode taken_apart(const EbnfExpression& expression);
    EbnfNode sequence(const EbnfExpression& expression);
    EbnfNode terminal(const EbnfTerminal& parts);
    EbnfNode rule(const std::string& name);
    EbnfNode characters(const std::string& text);

    const EbnfGrammar& m_grammar;
    const Expressions& m_recursive;
    const std::set<EbnfTerminal>& m_apart;
    EbnfPlan m_plan;
    std::map<EbnfTerminal, size_t> m_terminals;
    std::map<std::string, size_t> m_rules;
    std::vector<std::string> m_names;  // of m_plan.rules
};

EbnfNode Planner::terminal(const EbnfTerminal& parts) {
    EbnfNode result;
    result.kind = EbnfNode::Kind::TERMINAL;
    result.index = m_terminals.emplace(parts, m_plan.terminals.size()).first->second;
    if (result.index == m_plan.terminals.size()) m_plan.terminals.push_back(parts);
    return result;
}

EbnfNode Planner::rule(const std::string& name) {
    EbnfNode result;
    result.kind = EbnfNode::Kind::RULE;
    result.index = m_rules.emplace(name, m_names.size()).first->second;
    if (result.index == m_names.size()) m_names.push_back(name);
    return result;
}

EbnfNode Planner::characters(const std::string& text) {
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

EbnfNode Planner::taken_apart(const EbnfExpression& expression) {
    EbnfNode result;
    switch (expression.kind) {
        case Kind::TEXT:
            return characters(expression.text);
        case Kind::CHARACTERS:
            return terminal({&expression});
        case Kind::RULE:
            return rule(expression.text);
        case Kind::SEQUENCE:
            break;
        case Kind::CHOICE:
            result.kind = EbnfNode::Kind::CHOICE;
            break;
        case Kind::REPEAT:
            result.kind = EbnfNode::Kind::REPEAT;
            result.bounds = &expression;
            break;
    }
    for (const EbnfExpression& part : expression.parts) result.parts.push_back(regular({&part}));
    return result;
}

EbnfNode Planner::regular(EbnfTerminal parts) {
    if (m_apart.count(parts) == 0) {
        const bool is_rule = parts.size() == 1 && parts[0]->kind == Kind::RULE;
        const auto body = is_rule ? EbnfTerminal{&m_grammar.rules.at(parts[0]->text)} : parts;
        if (!is_rule || m_apart.count(body) == 0) return terminal(body);
    }
    if (parts.size() == 1) return taken_apart(*parts[0]);
    EbnfNode result;
    for (const EbnfExpression* part : parts) result.parts.push_back(regular({part}));
    return result;
}

/// Neighbours that are regular become one terminal.
EbnfNode Planner::sequence(const EbnfExpression& expression) {
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

EbnfNode Planner::node(const EbnfExpression& expression) {
    if (is_regular(expression)) return regular({&expression});
    if (expression.kind == Kind::RULE) return rule(expression.text);
    if (expression.kind == Kind::SEQUENCE) return sequence(expression);
    EbnfNode result;
    result.kind = expression.kind == Kind::CHOICE ? EbnfNode::Kind::CHOICE : EbnfNode::Kind::REPEAT;
    result.bounds = &expression;
    for (const EbnfExpression& part : expression.parts) result.parts.push_back(node(part));
    return result;
}

EbnfPlan Planner::plan() {
    rule("root");
    for (size_t i = 0; i < m_names.size(); ++i) {
        EbnfNode body = node(m_grammar.rules.at(m_names[i]));
        m_plan.rules.push_back(std::move(body));
    }
    return std::move(m_plan);
}

}  // namespace

EbnfPlan plan_ebnf(const EbnfGrammar& grammar) {
    const std::set<std::string> regular = find_regular(grammar);
    Expressions recursive;
    for (const auto& [name, expression] : grammar.rules)
        find_recursive(expression, regular, recursive);
    std::set<EbnfTerminal> apart;
    for (size_t round = 0;; ++round) {
        EbnfPlan plan = Planner(grammar, recursive, apart).plan();
        const std::vector<size_t> overruns =
            round < most_rounds ? find_overruns(grammar, plan) : std::vector<size_t>();
        if (overruns.empty()) return plan;
        for (const size_t index : overruns) apart.insert(plan.terminals[index]);
    }
}

}  // namespace pagewheel
