#include "text/incremental_detokenizer.hpp"

#include <string_view>
#include <utility>

namespace pagewheel {
namespace {

constexpr std::string_view replacement_character = "\xEF\xBF\xBD";
// A character has at most 4 bytes, a token at least one: what is still broken after that many
// tokens is not going to be repaired by the next.
constexpr size_t max_tokens_per_character = 4;
constexpr size_t max_window = 16;
constexpr size_t context_tokens = 4;

bool ends_within_character(std::string_view text) {
    return text.size() >= replacement_character.size() &&
           text.substr(text.size() - replacement_character.size()) == replacement_character;
}

}  // namespace

std::string IncrementalDetokenizer::append(int64_t token) {
    if (m_window.size() >= max_window && m_shown_tokens == m_window.size()) rebase();
    m_window.push_back(token);
    const std::string text = m_decode(m_window);
    if (ends_within_character(text) && m_window.size() - m_shown_tokens < max_tokens_per_character)
        return {};
    m_shown_tokens = m_window.size();
    if (text.size() <= m_shown_bytes) return {};
    const size_t begin = std::exchange(m_shown_bytes, text.size());
    return text.substr(begin);
}

std::string IncrementalDetokenizer::flush() {
    const std::string text = m_window.empty() ? std::string() : m_decode(m_window);
    const size_t begin = m_shown_bytes;
    m_window.clear();
    m_shown_bytes = m_shown_tokens = 0;
    return begin < text.size() ? text.substr(begin) : std::string();
}

void IncrementalDetokenizer::rebase() {
    // Cut only where the left part is complete text: then the right part's text is what follows it.
    for (size_t keep = context_tokens; keep < m_window.size(); ++keep) {
        const std::vector<int64_t> left(m_window.begin(), m_window.end() - keep);
        if (ends_within_character(m_decode(left))) continue;
        m_window.erase(m_window.begin(), m_window.end() - keep);
        m_shown_tokens = m_window.size();
        m_shown_bytes = m_decode(m_window).size();
        return;
    }
}

}  // namespace pagewheel
