// One of a few fixed texts, byte by byte.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace pagewheel {

/// None of the texts may begin with another one.
class LiteralMatcher {
public:
    enum class Step { MORE, MATCH, NONE };

    LiteralMatcher() = default;
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
    bool empty() const { return m_literals.empty(); }

private:
    std::vector<std::string> m_literals;
    std::string m_text;
    size_t m_match = 0;
};

}  // namespace pagewheel
