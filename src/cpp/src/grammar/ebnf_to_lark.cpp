// EBNF as Lark.
#include <cstdio>
#include <map>

#include "base/check.hpp"
#include "grammar/ebnf.hpp"
#include "grammar/ebnf_plan.hpp"

namespace pagewheel {
namespace {

using Kind = EbnfExpression::Kind;

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

    std::string write(const EbnfPlan& plan);

private:
    /// As an operand of a terminal.
    std::string operand(const EbnfExpression& expression);
    /// As an operand of a rule.
    std::string operand(const EbnfNode& node);

    const EbnfGrammar& m_grammar;
    LarkWriter& m_lark;
    std::map<std::string, std::string> m_shared;    // terminals of the grammar's rules
    std::vector<std::string> m_terminals, m_rules;  // names
};

std::string Writer::operand(const EbnfExpression& expression) {
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

std::string Writer::operand(const EbnfNode& node) {
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

std::string Writer::write(const EbnfPlan& plan) {
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

}  // namespace

std::string ebnf_to_lark(const std::string& text, LarkWriter& lark, const GrammarLimits& limits) {
    const EbnfGrammar grammar = parse_ebnf(text, limits);
    return Writer(grammar, lark).write(plan_ebnf(grammar));
}

}  // namespace pagewheel
