#include "grammar/mixed_text.hpp"

#include <algorithm>
#include <utility>

namespace pagewheel {
namespace {

// Larger texts are cut into rules, where a terminal may take too much.
constexpr size_t most_links = 3000;

std::string move_body(const std::string& before, const std::string& rule) {
    return before + (before.empty() || rule.empty() ? "" : " ") + rule;
}

/// An alternative of a rule.
void add_alternative(std::string& body, const std::string& alternative) {
    if (!body.empty()) body += " | ";
    body += alternative.empty() ? "\"\"" : alternative;
}

}  // namespace

bool MixedTextWriter::is_cut_at_its_end(const MixedText& text) {
    if (text.m_whole || text.m_ends.size() != 1 || !text.m_ends[0].after.expression.empty())
        return false;
    const size_t last = text.m_ends[0].from;
    return std::none_of(text.m_links.begin(), text.m_links.end(),
                        [&](const MixedText::Link& link) { return link.from == last; });
}

bool MixedTextWriter::is_large_loop(const MixedText& text) {
    const size_t num_links = text.m_links.size() + text.m_ends.size() * text.m_begins.size();
    return num_links * text.m_begins.size() > most_links;
}

MixedText MixedText::regular(Regular text) {
    MixedText result;
    result.m_whole = std::move(text);
    return result;
}

MixedText MixedText::rule(std::string name) {
    MixedText result;
    result.m_num_states = 1;
    result.m_begins = {{{}, std::move(name), 0}};
    result.m_ends = {{0, {}}};
    return result;
}

MixedText::Regular MixedTextWriter::joined(const Regular& a, const Regular& b) {
    if (a.expression.empty()) return b;
    if (b.expression.empty()) return a;
    return {m_lark.add_terminal(a.expression + ' ' + b.expression), a.is_constant && b.is_constant};
}

MixedText::Regular MixedTextWriter::either(const Regular& a, const Regular& b) {
    if (a.expression == b.expression) return a;
    if (a.expression.empty()) return {m_lark.add_terminal(b.expression + '?')};
    if (b.expression.empty()) return {m_lark.add_terminal(a.expression + '?')};
    return {m_lark.add_terminal(a.expression + " | " + b.expression)};
}

MixedText::Regular MixedTextWriter::starred(const Regular& text) {
    if (text.expression.empty()) return text;
    return {m_lark.add_terminal(text.expression + '*')};
}

MixedText MixedTextWriter::sequence(const std::vector<MixedText>& texts) {
    MixedText result = MixedText::regular({});
    for (const MixedText& each : texts) result = two(std::move(result), each);
    return result;
}

MixedText MixedTextWriter::two(MixedText a, MixedText b) {
    if (a.m_links.size() + b.m_links.size() + a.m_ends.size() * b.m_begins.size() > most_links) {
        a = apart(a);
        b = apart(b);
    }
    const size_t behind_a = a.m_num_states;  // the numbers of b's states begin there
    const auto moved = [&](MixedText::Move move) {
        move.to += behind_a;
        return move;
    };
    MixedText result = a;
    result.m_num_states += b.m_num_states;
    result.m_whole.reset();
    if (a.m_whole && b.m_whole) result.m_whole = joined(*a.m_whole, *b.m_whole);
    if (a.m_whole)
        for (const auto& begin : b.m_begins) {
            result.m_begins.push_back(moved(begin));
            result.m_begins.back().before = joined(*a.m_whole, begin.before);
        }
    for (const auto& link : b.m_links)
        result.m_links.push_back({link.from + behind_a, moved(link.move)});
    for (const auto& end : a.m_ends)
        for (const auto& begin : b.m_begins) {
            result.m_links.push_back({end.from, moved(begin)});
            result.m_links.back().move.before = joined(end.after, begin.before);
        }
    result.m_ends.clear();
    if (b.m_whole)
        for (const auto& end : a.m_ends)
            result.m_ends.push_back({end.from, joined(end.after, *b.m_whole)});
    for (const auto& end : b.m_ends) result.m_ends.push_back({end.from + behind_a, end.after});
    return result;
}

MixedText MixedTextWriter::alternatives(const std::vector<MixedText>& texts) {
    size_t num_links = 0;
    for (const MixedText& each : texts) num_links += each.m_links.size();
    const bool is_large = num_links > most_links;
    MixedText result;
    std::string regular;
    size_t num_regular = 0;
    for (const MixedText& each : texts) {
        const MixedText text = is_large ? apart(each) : each;
        if (text.m_whole) {
            add_alternative(regular, text.m_whole->expression);
            if (++num_regular == 1) result.m_whole = text.m_whole;
        }
        const auto moved = [&](MixedText::Move move) {
            move.to += result.m_num_states;
            return move;
        };
        for (const auto& begin : text.m_begins) result.m_begins.push_back(moved(begin));
        for (const auto& link : text.m_links)
            result.m_links.push_back({link.from + result.m_num_states, moved(link.move)});
        for (const auto& end : text.m_ends)
            result.m_ends.push_back({end.from + result.m_num_states, end.after});
        result.m_num_states += text.m_num_states;
    }
    if (num_regular > 1) result.m_whole = Regular{m_lark.add_terminal(regular)};
    unite_ends(result);
    return result;
}

MixedText MixedTextWriter::optional(const MixedText& text) {
    MixedText result = text;
    result.m_whole = text.m_whole ? either(*text.m_whole, {}) : Regular{};
    return result;
}

void MixedTextWriter::unite_ends(MixedText& text) {
    std::vector<size_t> num_ways(text.m_num_states);
    for (const auto& link : text.m_links) ++num_ways[link.from];
    for (const auto& end : text.m_ends) ++num_ways[end.from];
    // Nothing else begins there, so a constant is taken as a whole.
    const auto is_alone = [&](const MixedText::End& end) {
        return num_ways[end.from] == 1 && (end.after.is_constant || end.after.expression.empty());
    };
    if (is_cut_at_its_end(text) || std::none_of(text.m_ends.begin(), text.m_ends.end(), is_alone))
        return;
    const size_t common = text.m_num_states++;
    std::vector<MixedText::End> others{{common, {}}};
    for (const auto& end : text.m_ends)
        if (is_alone(end))
            text.m_links.push_back({end.from, {end.after, {}, common}});
        else
            others.push_back(end);
    text.m_ends = std::move(others);
}

MixedText MixedTextWriter::repeated(MixedText text, const MixedText& separator) {
    if (text.is_regular() && separator.is_regular()) {
        const Regular more = starred(joined(*separator.m_whole, *text.m_whole));
        return MixedText::regular(joined(*text.m_whole, more));
    }
    unite_ends(text);
    if (!separator.is_regular() || is_cut_at_its_end(text) || is_large_loop(text)) {
        const std::string more = name(two(separator, text));
        return two(std::move(text), MixedText::rule(m_lark.add_rule(more + '*')));
    }
    const Regular between = *separator.m_whole;
    const MixedText once = text;
    // Without rules between: whole texts, each with the separator.
    const Regular front = once.m_whole ? starred(joined(*once.m_whole, between)) : Regular{};
    const Regular back = once.m_whole ? starred(joined(between, *once.m_whole)) : Regular{};
    for (const auto& end : once.m_ends)
        for (const auto& begin : once.m_begins) {
            const Regular way = joined(joined(end.after, between), joined(front, begin.before));
            text.m_links.push_back({end.from, {way, begin.rule, begin.to}});
        }
    for (auto& begin : text.m_begins) begin.before = joined(front, begin.before);
    for (auto& end : text.m_ends) end.after = joined(end.after, back);
    if (text.m_whole) text.m_whole = joined(*text.m_whole, back);
    return from_the_left(text);
}

std::vector<std::string> MixedTextWriter::rules_from_the_left(const MixedText& text,
                                                              const MixedText::Move& begin) {
    std::vector<std::string> names(text.m_num_states), bodies(text.m_num_states);
    names[begin.to] = m_lark.reserve_rule();
    for (bool has_grown = true; has_grown;) {
        has_grown = false;
        for (const auto& link : text.m_links) {
            if (names[link.from].empty() || !names[link.move.to].empty()) continue;
            names[link.move.to] = m_lark.reserve_rule();
            has_grown = true;
        }
    }
    add_alternative(bodies[begin.to], begin.rule);
    for (const auto& [from, move] : text.m_links)
        if (!names[from].empty())
            add_alternative(bodies[move.to],
                            move_body(names[from], move_body(move.before.expression, move.rule)));
    for (size_t i = 0; i < names.size(); ++i)
        if (!names[i].empty()) m_lark.set_rule(names[i], bodies[i]);
    return names;
}

// A list of n items would else end in n rules at once.
MixedText MixedTextWriter::from_the_left(const MixedText& text) {
    MixedText result;
    result.m_num_states = text.m_num_states;
    result.m_whole = text.m_whole;
    result.m_ends = text.m_ends;
    for (const auto& begin : text.m_begins) {
        const auto names = rules_from_the_left(text, begin);
        std::vector<bool> is_done(text.m_num_states);
        for (const auto& end : text.m_ends) {
            if (names[end.from].empty() || is_done[end.from]) continue;
            is_done[end.from] = true;
            result.m_begins.push_back({begin.before, names[end.from], end.from});
        }
    }
    return result;
}

MixedText MixedTextWriter::apart(const MixedText& text) {
    return MixedText::rule(name(text));
}

std::string MixedTextWriter::name(const MixedText& text) {
    if (text.is_regular()) {
        const std::string& expression = text.m_whole->expression;
        return m_lark.add_terminal(expression.empty() ? "\"\"" : expression);
    }
    std::vector<std::string> names(text.m_num_states), bodies(text.m_num_states);
    for (std::string& each : names) each = m_lark.reserve_rule();
    const auto body_of = [&](const MixedText::Move& move) {
        return move_body(move_body(move.before.expression, move.rule), names[move.to]);
    };
    for (const auto& [from, move] : text.m_links) add_alternative(bodies[from], body_of(move));
    for (const auto& [from, after] : text.m_ends) add_alternative(bodies[from], after.expression);
    for (size_t i = 0; i < names.size(); ++i)
        if (!bodies[i].empty()) m_lark.set_rule(names[i], bodies[i]);
    std::string root;
    if (text.m_whole) add_alternative(root, text.m_whole->expression);
    for (const auto& begin : text.m_begins) add_alternative(root, body_of(begin));
    return m_lark.add_rule(root);
}

}  // namespace pagewheel
