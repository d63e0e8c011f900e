#include "text/generated_text.hpp"

#include <algorithm>
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

namespace {

bool starts_with(const std::string& text, const std::string& start) {
    return text.compare(0, start.size(), start) == 0;
}

}  // namespace

GeneratedText::GeneratedText(Decoders decoders, StopStrings stop_strings)
    : m_decoders(std::move(decoders)),
      m_detokenizer(m_decoders.shown),
      m_stop_strings(std::move(stop_strings)) {}

std::string GeneratedText::append(int64_t token) {
    m_stop_strings.begin_token();
    const std::string text = m_detokenizer.append(token);
    if (m_detokenizer.latest_has_text()) return feed(text);
    const std::string hidden = hidden_text(token);
    if (hidden.empty()) return {};
    m_detokenizer.forget_latest();
    return feed_hidden(hidden);
}

std::string GeneratedText::flush() {
    std::string text = feed(m_detokenizer.flush());
    text += m_stop_strings.flush();
    m_stop_strings = {};
    return text;
}

std::string GeneratedText::feed(const std::string& text) {
    if (m_waiting.empty()) return m_stop_strings.feed(text);
    // Where the held text became another one, what was hidden comes before it.
    const bool is_expected = starts_with(text + m_detokenizer.held(), m_expected);
    std::string passed;
    size_t begin = 0, num_fed = 0;
    for (; num_fed < m_waiting.size(); ++num_fed) {
        const HiddenText& hidden = m_waiting[num_fed];
        if (is_expected && hidden.begin > text.size()) break;
        const size_t end = is_expected ? hidden.begin : 0;
        passed += m_stop_strings.feed(text.substr(begin, end - begin));
        passed += m_stop_strings.feed_hidden(hidden.text);
        begin = end;
    }
    m_waiting.erase(m_waiting.begin(), m_waiting.begin() + ptrdiff_t(num_fed));
    for (HiddenText& hidden : m_waiting) hidden.begin -= text.size();
    m_expected.erase(0, m_waiting.empty() ? std::string::npos : text.size());
    return passed + m_stop_strings.feed(text.substr(begin));
}

std::string GeneratedText::feed_hidden(const std::string& text) {
    const std::string held = m_detokenizer.held();
    if (held.empty() || m_stop_strings.empty()) return m_stop_strings.feed_hidden(text);
    m_waiting.push_back({held.size(), text});
    m_expected = held;
    // A stop string may be complete already, if the held text stays as it is.
    StopStrings next = m_stop_strings;
    std::string passed;
    size_t begin = 0;
    for (const HiddenText& hidden : m_waiting) {
        passed += next.feed(held.substr(begin, hidden.begin - begin));
        passed += next.feed_hidden(hidden.text);
        begin = hidden.begin;
    }
    if (!next.matched()) return {};
    m_stop_strings = std::move(next);
    m_waiting.clear();
    m_expected.clear();
    return passed;
}

std::string GeneratedText::hidden_text(int64_t token) const {
    // Twice, because a lone space may be dropped at the start of text.
    const std::vector<int64_t> twice{token, token};
    return m_decoders.shown(twice).empty() ? m_decoders.verbatim({token}) : std::string();
}

GeneratedText::Decoders decoders_of(const Tokenizer& tokenizer, bool skip_special_tokens) {
    const auto decode = [&](bool skip) {
        return [=](const std::vector<int64_t>& tokens) { return tokenizer.decode(tokens, skip); };
    };
    return {decode(skip_special_tokens), decode(false),
            [=](int64_t token) { return tokenizer.token_bytes(token); }};
}

SequenceText::SequenceText(GeneratedText::Decoders decoders, StopStrings stop_strings)
    : m_decoders(decoders),
      m_generated(std::move(decoders), stop_strings),
      m_has_stop_strings(!stop_strings.empty()) {}

void SequenceText::append(const std::vector<int64_t>& tokens) {
    if (m_ended) return;
    for (int64_t token : tokens) {  // decoders may throw: what was decoded before them counts
        const size_t begin = m_has_stop_strings ? m_text.size() + m_generated.num_held() : 0;
        m_text += m_generated.append(token);
        if (m_has_stop_strings)
            m_begins.push_back(std::max(begin, m_begins.empty() ? 0 : m_begins.back()));
        if (++m_num_decoded <= m_num_skipped) m_num_taken = m_text.size();
    }
}

void SequenceText::skip(size_t num_tokens) {
    m_num_skipped = num_tokens;
    if (m_num_decoded <= num_tokens) m_num_taken = m_text.size();
}

void SequenceText::end_with(const std::vector<int64_t>& tokens) {
    if (m_num_decoded > 0 || m_num_skipped > 0 || m_has_stop_strings || m_ended) {
        append(tokens);
        if (std::exchange(m_ended, true)) return;
        m_is_cut = m_generated.stopped();
        m_text += m_generated.flush();
        return;
    }
    m_text = m_decoders.shown(tokens);
    m_num_decoded = tokens.size();
    m_ended = true;
}

size_t SequenceText::num_tokens() const {
    if (!m_has_stop_strings || (m_ended && !m_is_cut)) return m_num_decoded;
    return size_t(std::lower_bound(m_begins.begin(), m_begins.end(), m_text.size()) -
                  m_begins.begin());
}

std::string SequenceText::take() {
    return m_text.substr(std::exchange(m_num_taken, m_text.size()));
}

}  // namespace pagewheel
