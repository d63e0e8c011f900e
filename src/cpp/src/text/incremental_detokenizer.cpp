#include "text/incremental_detokenizer.hpp"

#include <cstddef>
#include <string_view>
#include <utility>

namespace pagewheel {
namespace {

constexpr std::string_view replacement_character = "\xEF\xBF\xBD";
// The bytes of a character but for its last, which some decoders show one by one.
constexpr size_t max_replacements = 3;
// More than an unfinished character's, so that a window that is cut begins before it.
constexpr size_t min_window = 4;

bool ends_with(std::string_view text, std::string_view end) {
    return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

/// Bytes at the end of `text` that may be half a character.
size_t broken_bytes(std::string_view text) {
    size_t size = 0;
    for (size_t i = 0; i < max_replacements && ends_with(text, replacement_character); ++i) {
        text.remove_suffix(replacement_character.size());
        size += replacement_character.size();
    }
    return size;
}

/// Bytes at the end of `text` that the next tokens may change.
size_t uncertain_bytes(std::string_view text) {
    if (const size_t size = broken_bytes(text); size > 0) return size;
    // Decoders take a space away at the end of all text, and where transformers'
    // clean_up_tokenization_spaces does: before punctuation and English contractions.
    for (const std::string_view end : {" ", " '", " 'r", " 'v", " n", " n'"})
        if (ends_with(text, end)) return end.size();
    return 0;
}

bool continues_character(char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

}  // namespace

std::string IncrementalDetokenizer::append(int64_t token) {
    if (m_window.size() >= m_max_window) shorten_window();
    m_window.push_back(token);
    std::string text;
    try {
        text = m_decode(m_window);
    } catch (...) {  // it may be tried again
        m_window.pop_back();
        throw;
    }
    m_latest_has_text = text != m_text;
    m_text = std::move(text);
    return show(m_text.size() - uncertain_bytes(m_text));
}

size_t IncrementalDetokenizer::num_held_characters() const {
    const std::string text = held();
    return text.size() - broken_bytes(text);
}

std::string IncrementalDetokenizer::flush() {
    std::string rest = show(m_text.size());
    m_window.clear();
    m_text.clear();
    m_shown = 0;
    m_max_window = max_window;
    return rest;
}

std::string IncrementalDetokenizer::show(size_t end) {
    if (end <= m_shown) return {};
    size_t begin = std::exchange(m_shown, end);
    // A decoder that changes more than is held back must not make us cut a character.
    while (begin < end && continues_character(m_text[begin])) ++begin;
    return m_text.substr(begin, end - begin);
}

void IncrementalDetokenizer::shorten_window() {
    const size_t held = m_text.size() - m_shown;
    for (size_t size = min_window; size < m_window.size(); size *= 2) {
        const std::vector<int64_t> last(m_window.end() - ptrdiff_t(size), m_window.end());
        std::string text = m_decode(last);
        // Where it ends as the longer one does, in some certain text and all of what is not, its
        // continuations do.
        if (text.size() <= held || !ends_with(m_text, text)) continue;
        m_window = last;
        m_text = std::move(text);
        m_shown = m_text.size() - held;
        m_max_window = max_window;
        return;
    }
    m_max_window = 2 * m_window.size();
}

}  // namespace pagewheel
