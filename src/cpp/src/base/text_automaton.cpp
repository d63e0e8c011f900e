#include "base/text_automaton.hpp"

#include <string_view>

namespace pagewheel {

TextAutomaton::TextAutomaton(const std::set<std::string>& texts)
    : m_states{{0, 0, 0, 0}}, m_rows{{0, 0, 0, 0}} {
    const std::vector<std::string_view> sorted(texts.begin(), texts.end());
    struct Begin {
        size_t first, last;  // the texts that begin with the state's bytes
        size_t depth;        // so many bytes
        State fallback;      // after them without the first, or without more
    };
    std::vector<Begin> begins{{0, sorted.size(), 0, start}};  // by state
    for (State state = 0; state < begins.size(); ++state) {
        const Begin begin = begins[state];
        const size_t depth = begin.depth;
        uint32_t row = m_states[begin.fallback].row;
        for (size_t first = begin.first, last; first < begin.last; first = last) {
            last = first + 1;
            if (sorted[first].size() == depth) continue;  // it ends in this state
            const char byte = sorted[first][depth];
            while (last < begin.last && sorted[last][depth] == byte) ++last;
            const auto to = State(m_states.size());
            const State fallback = state == start ? start : next(begin.fallback, byte);
            const uint32_t size = sorted[first].size() == depth + 1 ? uint32_t(depth + 1) : 0;
            const Node& shorter = m_states[fallback];
            m_states.push_back({0, 0, size ? size : shorter.longest_match,
                                shorter.shortest_match ? shorter.shortest_match : size});
            begins.push_back({first, last, depth + 1, fallback});
            row = with(row, static_cast<unsigned char>(byte), to);
        }
        const bool is_leaf = row == m_states[begin.fallback].row;
        m_states[state].row = row;
        m_states[state].num_begun = is_leaf ? m_states[begin.fallback].num_begun : uint32_t(depth);
    }
    m_states.shrink_to_fit();
    m_rows.shrink_to_fit();
}

uint32_t TextAutomaton::with(uint32_t row, unsigned char byte, State to, int shift) {
    if (shift < 0) return to;
    const size_t digit = size_t(byte >> shift) & 3;
    Row copy = m_rows[row];
    copy[digit] = with(copy[digit], byte, to, shift - 2);
    m_rows.push_back(copy);
    return uint32_t(m_rows.size() - 1);
}

}  // namespace pagewheel
