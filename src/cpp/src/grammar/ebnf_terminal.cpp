#include "grammar/ebnf_terminal.hpp"

#include <algorithm>
#include <set>

namespace pagewheel {
namespace {

using Kind = EbnfExpression::Kind;
using States = std::vector<size_t>;

constexpr size_t most_states = 500;
constexpr size_t most_pairs = 500;

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

bool contains(const CharacterSet& set, uint32_t code) {
    return std::any_of(set.begin(), set.end(), [&](const auto& range) {
        return range.first <= code && code <= range.second;
    });
}

/// What is known of a part of an expression.
struct Part {
    bool is_nullable = true;
    States first, last;
};

class Builder {
public:
    explicit Builder(const EbnfGrammar& grammar) : m_grammar(grammar) {}

    Part part(const EbnfExpression& expression);
    Part joined(Part left, const Part& right);

    CharacterAutomaton automaton;

private:
    Part character(CharacterSet set);
    void connect(const States& from, const States& to);

    const EbnfGrammar& m_grammar;
};

void append(States& states, const States& more) {
    states.insert(states.end(), more.begin(), more.end());
}

void Builder::connect(const States& from, const States& to) {
    if (from.size() * to.size() > most_states * most_states / 4) automaton.is_too_large = true;
    if (automaton.is_too_large) return;
    for (const size_t state : from) append(automaton.next[state], to);
}

Part Builder::character(CharacterSet set) {
    if (automaton.characters.size() >= most_states) automaton.is_too_large = true;
    const size_t state = automaton.characters.size();
    automaton.characters.push_back(std::move(set));
    automaton.next.emplace_back();
    return {false, {state}, {state}};
}

Part Builder::joined(Part left, const Part& right) {
    connect(left.last, right.first);
    if (left.is_nullable) append(left.first, right.first);
    if (!right.is_nullable) left.last.clear();
    append(left.last, right.last);
    left.is_nullable = left.is_nullable && right.is_nullable;
    return left;
}

Part Builder::part(const EbnfExpression& expression) {
    Part result;
    if (automaton.is_too_large) return result;
    switch (expression.kind) {
        case Kind::TEXT:
            for (const uint32_t code : code_points(expression.text))
                result = joined(std::move(result), character({{code, code}}));
            return result;
        case Kind::CHARACTERS:
            return character(of_class(expression));
        case Kind::RULE:
            return part(m_grammar.rules.at(expression.text));
        case Kind::SEQUENCE:
            for (const EbnfExpression& each : expression.parts)
                result = joined(std::move(result), part(each));
            return result;
        case Kind::CHOICE:
            result.is_nullable = false;
            for (const EbnfExpression& each : expression.parts) {
                const Part option = part(each);
                result.is_nullable = result.is_nullable || option.is_nullable;
                append(result.first, option.first);
                append(result.last, option.last);
            }
            return result;
        case Kind::REPEAT:
            if (expression.most == 0) return result;
            result = part(expression.parts[0]);
            if (expression.most > 1) connect(result.last, result.first);
            result.is_nullable = result.is_nullable || expression.least == 0;
            return result;
    }
    return result;
}

States behind(const CharacterAutomaton& automaton, const States& states) {
    std::set<size_t> found;
    for (const size_t state : states)
        found.insert(automaton.next[state].begin(), automaton.next[state].end());
    return {found.begin(), found.end()};
}

States reading(const CharacterAutomaton& automaton, const States& states, uint32_t code) {
    States result;
    for (const size_t state : states)
        if (contains(automaton.characters[state], code)) result.push_back(state);
    return result;
}

/// One character of each kind that the automata tell apart in these states.
std::set<uint32_t> kinds_of_characters(const CharacterAutomaton& a, const States& in_a,
                                       const CharacterAutomaton& b, const States& in_b) {
    std::set<uint32_t> begins;
    const auto add = [&](const CharacterAutomaton& automaton, const States& states) {
        for (const size_t state : states)
            for (const auto& [first, last] : automaton.characters[state]) {
                begins.insert(first);
                begins.insert(last + 1);
            }
    };
    add(a, in_a);
    add(b, in_b);
    return begins;
}

}  // namespace

CharacterSet united(const CharacterSet& a, const CharacterSet& b) {
    CharacterSet all = a;
    all.insert(all.end(), b.begin(), b.end());
    return ordered(std::move(all));
}

bool has_common(const CharacterSet& a, const CharacterSet& b) {
    return std::any_of(a.begin(), a.end(), [&](const auto& one) {
        return std::any_of(b.begin(), b.end(), [&](const auto& other) {
            return one.first <= other.second && other.first <= one.second;
        });
    });
}

CharacterSet CharacterAutomaton::first_characters() const {
    CharacterSet result;
    for (const size_t state : first) result = united(result, characters[state]);
    return result;
}

CharacterAutomaton to_automaton(const EbnfGrammar& grammar,
                                const std::vector<const EbnfExpression*>& sequence) {
    Builder builder(grammar);
    Part all;
    for (const EbnfExpression* each : sequence)
        all = builder.joined(std::move(all), builder.part(*each));
    CharacterAutomaton& result = builder.automaton;
    result.is_nullable = all.is_nullable;
    result.first = all.first;
    result.is_last.resize(result.characters.size());
    for (const size_t state : all.last) result.is_last[state] = true;
    return std::move(result);
}

bool may_overrun(const CharacterAutomaton& longer, const CharacterAutomaton& shorter,
                 const CharacterSet& follow) {
    if (longer.is_too_large || shorter.is_too_large) return false;
    // Both read the same text: pairs of the states that they may be in before its next character.
    using Pair = std::pair<States, States>;
    std::set<Pair> seen;
    std::vector<Pair> pending{{longer.first, shorter.first}};
    while (!pending.empty()) {
        const Pair at = pending.back();
        pending.pop_back();
        for (const uint32_t code : kinds_of_characters(longer, at.first, shorter, at.second)) {
            const States in_longer = reading(longer, at.first, code);
            const States in_shorter = reading(shorter, at.second, code);
            if (in_longer.empty() || in_shorter.empty()) continue;
            Pair behind_it{behind(longer, in_longer), behind(shorter, in_shorter)};
            const bool may_end = std::any_of(in_shorter.begin(), in_shorter.end(),
                                             [&](size_t state) { return shorter.is_last[state]; });
            if (may_end)
                for (const size_t state : behind_it.first)
                    if (has_common(longer.characters[state], follow)) return true;
            if (seen.size() >= most_pairs) return false;
            if (seen.insert(behind_it).second) pending.push_back(std::move(behind_it));
        }
    }
    return false;
}

}  // namespace pagewheel
