#include "grammar/transition_network.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace pagewheel {
namespace {

using Network = TransitionNetwork;

// Larger networks are cut into rules, where a terminal may take too much.
constexpr size_t most_transitions = 3000;

constexpr const char* empty_text = "\"\"";

std::string in_a_row(const std::string& before, const std::string& rule) {
    return before + (before.empty() || rule.empty() ? "" : " ") + rule;
}

/// Adds an alternative to the body of a rule.
void add_alternative(std::string& body, const std::string& alternative) {
    if (!body.empty()) body += " | ";
    body += alternative.empty() ? empty_text : alternative;
}

/// It has the empty text alone.
bool is_empty(const Network& network) {
    return network.is_regular() && network.whole()->expression.empty();
}

size_t count_from(const Network& network, size_t state) {
    return size_t(std::count_if(network.transitions.begin(), network.transitions.end(),
                                [&](const auto& each) { return each.from == state; }));
}

/// It ends with a rule or a constant, and nothing else may come there.
bool ends_by_itself(const Network& network) {
    const auto& finals = network.finals;
    return finals.size() == 1 && finals[0].state != 0 && finals[0].after.expression.empty() &&
           count_from(network, finals[0].state) == 0;
}

bool is_large_loop(const Network& network) {
    const size_t num_first = count_from(network, 0);
    const size_t count = network.transitions.size() + network.finals.size() * num_first;
    return count * num_first > most_transitions;
}

/// Appends the states behind a network's start. Returns what is added to their numbers.
size_t append_states(const Network& part, Network& all) {
    const size_t behind = all.num_states - 1;
    for (const auto& each : part.transitions)
        if (each.from != 0)
            all.transitions.push_back(
                {each.from + behind, each.before, each.rule, each.to + behind});
    for (const auto& each : part.finals)
        if (each.state != 0) all.finals.push_back({each.state + behind, each.after});
    all.num_states += part.num_states - 1;
    return behind;
}

/// Lets finals at which terminals may end lead to one state: a constant is taken as a whole where
/// nothing else begins.
void unite_finals(Network& network) {
    const auto is_alone = [&](const Network::Final& each) {
        return each.state != 0 && count_from(network, each.state) == 0 &&
               (each.after.is_constant || each.after.expression.empty()) &&
               1 == std::count_if(
                        network.finals.begin(), network.finals.end(),
                        [&](const Network::Final& other) { return other.state == each.state; });
    };
    const auto first_alone =
        std::stable_partition(network.finals.begin(), network.finals.end(),
                              [&](const auto& each) { return !is_alone(each); });
    if (ends_by_itself(network) || first_alone == network.finals.end()) return;
    const size_t common = network.num_states++;
    for (auto each = first_alone; each != network.finals.end(); ++each)
        network.transitions.push_back({each->state, each->after, {}, common});
    network.finals.erase(first_alone, network.finals.end());
    network.finals.push_back({common, {}});
}

/// Writes a network as rules of the text from a state on, so that at each place only what may come
/// next is begun. Within a loop a rule is the text up to a state, which is recursive at its left: a
/// list of n items would else end in n rules at once.
class RestWriter {
public:
    RestWriter(const Network& network, LarkWriter& lark)
        : m_lark(lark), m_states(network.num_states) {
        // Parts are appended one behind the other, so only the transitions of loops lead back.
        for (const auto& each : network.transitions) {
            m_states[each.from].transitions.push_back(&each);
            size_t& end = m_states[each.to].loop_end;
            end = std::max(end, each.from);
        }
        for (const auto& each : network.finals) m_states[each.state].finals.push_back(&each);
        for (size_t i = 0, loop = 0, end = 0; i < m_states.size(); ++i) {
            if (i > end) loop = i;
            end = std::max({i, end, m_states[i].loop_end});
            m_states[i].loop = loop;
        }
    }

    /// Name of the rule; empty where the text ends.
    std::string rest(size_t entry) {
        if (m_states[entry].rest) return *m_states[entry].rest;
        std::string whole;
        std::vector<std::pair<size_t, std::string>> reached{{entry, ""}};
        std::map<size_t, std::string> names, bodies;
        for (size_t i = 0; i < reached.size(); ++i) {
            const auto [state, before] = reached[i];
            for (const auto* each : m_states[state].transitions) {
                const std::string text =
                    in_a_row(before, in_a_row(each->before.expression, each->rule));
                if (m_states[each->to].loop != m_states[entry].loop) {
                    add_alternative(whole, in_a_row(text, rest(each->to)));
                    continue;
                }
                const auto [name, is_new] = names.try_emplace(each->to);
                if (is_new) {
                    name->second = m_lark.reserve_rule();
                    reached.push_back(*name);
                }
                add_alternative(bodies[each->to], text);
            }
            for (const auto* each : m_states[state].finals)
                add_alternative(whole, in_a_row(before, each->after.expression));
        }
        for (const auto& [state, body] : bodies) m_lark.set_rule(names[state], body);
        const bool is_end = whole == empty_text;
        return m_states[entry].rest.emplace(is_end ? "" : m_lark.add_rule(whole));
    }

private:
    struct State {
        std::vector<const Network::Transition*> transitions = {};
        std::vector<const Network::Final*> finals = {};
        size_t loop_end = 0;  ///< the last state from which a transition leads here
        size_t loop = 0;      ///< the first state of its loop
        std::optional<std::string> rest = {};
    };

    LarkWriter& m_lark;
    std::vector<State> m_states;
};

}  // namespace

RegularText NetworkWriter::joined(const RegularText& a, const RegularText& b) {
    if (a.expression.empty()) return b;
    if (b.expression.empty()) return a;
    return {m_lark.add_terminal(a.expression + ' ' + b.expression), a.is_constant && b.is_constant};
}

RegularText NetworkWriter::starred(const RegularText& text) {
    if (text.expression.empty()) return text;
    return {m_lark.add_terminal(text.expression + '*')};
}

Network NetworkWriter::sequence(const std::vector<Network>& parts) {
    Network result = Network::regular({});
    for (const Network& each : parts) result = two(std::move(result), each);
    return result;
}

Network NetworkWriter::two(Network a, Network b) {
    if (is_empty(a)) return b;
    if (is_empty(b)) return a;
    if (a.transitions.size() + b.transitions.size() + a.finals.size() * count_from(b, 0) >
        most_transitions) {
        a = apart(a);
        b = apart(b);
    }
    Network result{a.num_states, a.transitions, {}};
    const size_t behind = append_states(b, result);
    for (const auto& end : a.finals) {
        for (const auto& each : b.transitions)
            if (each.from == 0)
                result.transitions.push_back(
                    {end.state, joined(end.after, each.before), each.rule, each.to + behind});
        if (const RegularText* whole = b.whole())
            result.finals.push_back({end.state, joined(end.after, *whole)});
    }
    return result;
}

Network NetworkWriter::alternatives(const std::vector<Network>& parts) {
    if (parts.size() == 1) return parts[0];
    size_t num_transitions = 0, num_regular = 0;
    for (const Network& each : parts) num_transitions += each.transitions.size();
    Network result;
    RegularText regular;
    std::string body;
    for (const Network& each : parts) {
        const Network part = num_transitions > most_transitions ? apart(each) : each;
        const size_t behind = append_states(part, result);
        for (const auto& transition : part.transitions)
            if (transition.from == 0)
                result.transitions.push_back(
                    {0, transition.before, transition.rule, transition.to + behind});
        if (!part.whole()) continue;
        add_alternative(body, part.whole()->expression);
        if (++num_regular == 1) regular = *part.whole();
    }
    if (num_regular > 1) regular = {m_lark.add_terminal(body)};
    if (num_regular > 0) result.finals.push_back({0, regular});
    unite_finals(result);
    return result;
}

Network NetworkWriter::optional(Network part) {
    if (!part.whole()) part.finals.push_back({0, {}});
    for (auto& each : part.finals)
        if (each.state == 0 && !each.after.expression.empty())
            each.after = {m_lark.add_terminal(each.after.expression + '?')};
    return part;
}

Network NetworkWriter::repeated(Network part, const Network& separator) {
    if (part.is_regular() && separator.is_regular())
        return Network::regular(
            joined(*part.whole(), starred(joined(*separator.whole(), *part.whole()))));
    unite_finals(part);
    if (!separator.is_regular() || ends_by_itself(part) || is_large_loop(part)) {
        const std::string more = name(two(separator, part));
        return two(std::move(part), Network::rule(m_lark.add_rule(more + '*')));
    }
    const RegularText between = *separator.whole();
    const Network once = part;
    // Whole texts without a rule, each with the separator, before and behind those with rules.
    const RegularText front =
        once.whole() ? starred(joined(*once.whole(), between)) : RegularText();
    const RegularText back = once.whole() ? starred(joined(between, *once.whole())) : RegularText();
    for (auto& each : part.transitions)
        if (each.from == 0) each.before = joined(front, each.before);
    for (auto& end : part.finals) end.after = joined(end.after, back);
    for (const auto& end : once.finals)
        for (const auto& each : once.transitions)
            if (end.state != 0 && each.from == 0)
                part.transitions.push_back(
                    {end.state, joined(joined(end.after, between), joined(front, each.before)),
                     each.rule, each.to});
    return part;
}

Network NetworkWriter::apart(const Network& part) {
    return Network::rule(name(part));
}

std::string NetworkWriter::name(const Network& network) {
    if (network.is_regular()) {
        const std::string& expression = network.whole()->expression;
        return m_lark.add_terminal(expression.empty() ? empty_text : expression);
    }
    return RestWriter(network, m_lark).rest(0);
}

}  // namespace pagewheel
