#include "grammar/ebnf_overruns.hpp"

#include <algorithm>
#include <set>

#include "grammar/ebnf_terminal.hpp"

namespace pagewheel {
namespace {

using Terminals = std::set<size_t>;

constexpr size_t most_terminals = 200;
constexpr size_t most_rules = 500;

/// What a piece of the grammar begins with, and whether it may be nothing.
struct Begin {
    Terminals terminals;
    bool is_nullable = false;
};

class Analysis {
public:
    Analysis(const EbnfGrammar& grammar, const EbnfPlan& plan)
        : m_plan(plan),
          m_begins(plan.rules.size()),
          m_rule_follows(plan.rules.size()),
          m_follows(plan.terminals.size()) {
        for (const EbnfTerminal& terminal : plan.terminals)
            m_automata.push_back(to_automaton(grammar, terminal));
    }

    std::vector<size_t> overruns();

private:
    Begin begin_of(const EbnfNode& node) const;
    bool add(Terminals& set, const Terminals& more) const;
    /// Notes what may come behind each terminal of the node, which `follow` comes behind.
    bool spread(const EbnfNode& node, const Terminals& follow);
    void check_together(const Terminals& together, Terminals& found) const;

    const EbnfPlan& m_plan;
    std::vector<CharacterAutomaton> m_automata;
    std::vector<Begin> m_begins;            // of rules
    std::vector<Terminals> m_rule_follows;  // what comes behind a rule
    std::vector<Terminals> m_follows;       // behind a terminal
};

bool Analysis::add(Terminals& set, const Terminals& more) const {
    const size_t before = set.size();
    set.insert(more.begin(), more.end());
    return set.size() > before;
}

Begin Analysis::begin_of(const EbnfNode& node) const {
    Begin result;
    switch (node.kind) {
        case EbnfNode::Kind::TERMINAL:
            return {{node.index}, m_automata[node.index].is_nullable};
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

bool Analysis::spread(const EbnfNode& node, const Terminals& follow) {
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
            for (const EbnfNode& part : node.parts) has_grown = spread(part, follow) || has_grown;
            return has_grown;
    }
    return has_grown;
}

/// The terminals may begin at one place of a text.
void Analysis::check_together(const Terminals& together, Terminals& found) const {
    for (const size_t shorter : together) {
        CharacterSet follow;
        for (const size_t each : m_follows[shorter])
            follow = united(follow, m_automata[each].first_characters());
        for (const size_t longer : together)
            if (found.count(longer) == 0 &&
                may_overrun(m_automata[longer], m_automata[shorter], follow))
                found.insert(longer);
    }
}

std::vector<size_t> Analysis::overruns() {
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
    return {found.begin(), found.end()};
}

}  // namespace

std::vector<size_t> find_overruns(const EbnfGrammar& grammar, const EbnfPlan& plan) {
    if (plan.terminals.size() > most_terminals || plan.rules.size() > most_rules) return {};
    if (plan.terminals.size() == 1 && plan.rules[0].kind == EbnfNode::Kind::TERMINAL) return {};
    return Analysis(grammar, plan).overruns();
}

}  // namespace pagewheel
