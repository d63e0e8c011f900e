// Finding several texts at once in a stream of bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace pagewheel {

/// The automaton of Aho and Corasick (1975) with all its transitions, so that a byte costs four
/// reads whatever came before. It takes up to 80 bytes of memory for each byte of the texts.
class TextAutomaton {
public:
    /// The longest ending of the bytes so far with which one of the texts begins.
    using State = uint32_t;
    static constexpr State start = 0;

    /// None of the texts is empty. They have less than 2^30 bytes in all.
    explicit TextAutomaton(const std::set<std::string>& texts);

    State next(State state, char byte) const {
        uint32_t at = m_states[state].row;
        for (int shift = 6; shift >= 0; shift -= 2)
            at = m_rows[at][size_t(static_cast<unsigned char>(byte) >> shift) & 3];
        return at;
    }
    /// The length of the longest beginning of a text, less than all of it, that the bytes end with.
    size_t num_begun(State state) const { return m_states[state].num_begun; }
    /// Bytes of the longest text that ends here; 0: none does.
    size_t longest_match(State state) const { return m_states[state].longest_match; }
    /// Bytes of the shortest text that ends here.
    size_t shortest_match(State state) const { return m_states[state].shortest_match; }

private:
    /// A node of a tree of four levels, one for each two bits of a byte: the lowest has states,
    /// those above have rows. All of row 0 leads to the start.
    using Row = std::array<uint32_t, 4>;
    struct Node {
        uint32_t row, num_begun, longest_match, shortest_match;
    };

    /// A copy of the tree in which the byte leads to the state. It shares the other rows.
    uint32_t with(uint32_t row, unsigned char byte, State to, int shift = 6);

    std::vector<Node> m_states;  // those of less depth first
    std::vector<Row> m_rows;
};

}  // namespace pagewheel
