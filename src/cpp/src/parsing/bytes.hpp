// Kinds of bytes in tool calls, and fixed texts that come byte by byte.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pagewheel {

inline bool is_space(char byte) {
    return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

inline bool is_digit(char byte) {
    return byte >= '0' && byte <= '9';
}

/// Bytes of UTF-8 beyond ASCII are letters.
inline bool begins_name(char byte) {
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '_' ||
           static_cast<unsigned char>(byte) >= 0x80;
}

inline bool is_name_byte(char byte) {
    return begins_name(byte) || is_digit(byte);
}

/// The text without white space at its ends.
inline std::string trimmed(std::string_view text) {
    while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
    while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
    return std::string(text);
}

/// Matches one of a few texts, of which none may begin with another one.
class LiteralMatcher {
public:
    enum class Step { MORE, MATCH, NONE };

    explicit LiteralMatcher(std::vector<std::string> literals) : m_literals(std::move(literals)) {}

    Step take(char byte) {
        m_text += byte;
        Step step = Step::NONE;
        for (size_t i = 0; i < m_literals.size(); ++i) {
            if (m_literals[i].compare(0, m_text.size(), m_text) != 0) continue;
            m_match = i;
            step = m_literals[i].size() == m_text.size() ? Step::MATCH : Step::MORE;
            break;
        }
        if (step != Step::MORE) m_text.clear();
        return step;
    }
    /// Which of the texts the latest MATCH was.
    size_t match() const { return m_match; }
    /// A text has begun.
    bool is_within() const { return !m_text.empty(); }

private:
    std::vector<std::string> m_literals;
    std::string m_text;
    size_t m_match = 0;
};

}  // namespace pagewheel
