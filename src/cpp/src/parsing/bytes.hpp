// Kinds of bytes in tool calls, and fixed texts in what comes byte by byte.
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

/// What a reader makes of the next byte. Nothing may be asked of a reader that refused one.
enum class ReadStep {
    MORE,       ///< The byte was taken.
    FRAME,      ///< The byte was taken, and ends what stands around a call.
    DONE,       ///< The byte was the last one.
    REASONING,  ///< The byte was the last one, and reasoning follows.
    REFUSED,    ///< The byte was not taken: the text ended before it, or is none.
};

/// Finds the first of some markers in a text that comes byte by byte.
class MarkerFinder {
public:
    static constexpr size_t npos = std::string::npos;

    explicit MarkerFinder(const std::vector<std::string>& markers = {}) {
        for (const std::string& marker : markers) add(marker);
    }

    void add(const std::string& marker) {
        m_markers.push_back(marker);
        if (!marker.empty()) m_begins[static_cast<unsigned char>(marker.front())] = true;
    }
    const std::string& text(size_t marker) const { return m_markers[marker]; }

    /// The index of the marker that the byte ends, or npos. Bytes that are no part of a marker are
    /// appended to `passed`.
    size_t take(char byte, std::string& passed) {
        m_held += byte;
        while (!m_held.empty()) {
            bool is_prefix = false;
            const size_t found = find(is_prefix);
            if (found != npos) m_held.clear();
            if (found != npos || is_prefix) return found;
            passed += m_held.front();
            m_held.erase(0, 1);
        }
        return npos;
    }
    /// What may become a marker has begun.
    bool is_within() const { return !m_held.empty(); }
    /// What is held back, when no more follows.
    std::string flush() { return std::exchange(m_held, {}); }
    /// How many bytes at the beginning of `text` begin no marker, if nothing is held back.
    size_t skip(std::string_view text) const {
        if (!m_held.empty()) return 0;
        size_t i = 0;
        while (i < text.size() && !m_begins[static_cast<unsigned char>(text[i])]) ++i;
        return i;
    }

private:
    size_t find(bool& is_prefix) const {
        for (size_t i = 0; i < m_markers.size(); ++i) {
            if (m_markers[i].compare(0, m_held.size(), m_held) != 0) continue;
            is_prefix = true;
            if (m_markers[i].size() == m_held.size()) return i;
        }
        return npos;
    }

    std::vector<std::string> m_markers;
    bool m_begins[256] = {};
    std::string m_held;
};

/// Matches one of a few texts, of which none may begin with another one.
class LiteralMatcher {
public:
    explicit LiteralMatcher(std::vector<std::string> literals) : m_finder(std::move(literals)) {}

    ReadStep take(char byte) {
        std::string passed;
        m_match = m_finder.take(byte, passed);
        if (m_match != MarkerFinder::npos) return ReadStep::DONE;
        return passed.empty() ? ReadStep::MORE : ReadStep::REFUSED;
    }
    /// take() of a text with white space before it.
    ReadStep take_behind_space(char byte) {
        return is_space(byte) && !m_finder.is_within() ? ReadStep::MORE : take(byte);
    }
    /// Which of the texts was matched with the latest byte.
    size_t match() const { return m_match; }
    /// A text has begun.
    bool is_within() const { return m_finder.is_within(); }

private:
    MarkerFinder m_finder;
    size_t m_match = MarkerFinder::npos;
};

}  // namespace pagewheel
