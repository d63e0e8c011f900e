#include "text/generated_text.hpp"

#include <utility>

namespace pagewheel {
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
    if (m_ahead) m_ahead->stop_strings.begin_token();
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
    if (!m_ahead) return m_stop_strings.feed(text);
    const std::string held = m_ahead->held;
    if (starts_with(text, held)) {
        const std::string passed = confirm();
        return passed + m_stop_strings.feed(text.substr(held.size()));
    }
    m_ahead->otherwise += m_stop_strings.feed(text);
    if (starts_with(text + m_detokenizer.held(), held)) {
        m_ahead->held.erase(0, text.size());
        return {};
    }
    const std::string passed = std::move(m_ahead->otherwise);
    m_ahead.reset();
    return passed;
}

std::string GeneratedText::feed_hidden(const std::string& text) {
    const std::string held = m_detokenizer.held();
    if (held.empty() || m_stop_strings.empty()) return m_stop_strings.feed_hidden(text);
    if (m_ahead && !starts_with(held, m_ahead->held)) {  // it became another text
        const std::string passed = std::move(m_ahead->otherwise);
        m_ahead.reset();
        return passed + feed_hidden(text);
    }
    if (!m_ahead) m_ahead = Ahead{m_stop_strings, {}, {}, {}};
    Ahead& ahead = *m_ahead;
    ahead.passed += ahead.stop_strings.feed(held.substr(ahead.held.size()));
    ahead.passed += ahead.stop_strings.feed_hidden(text);
    ahead.held = held;
    ahead.otherwise += m_stop_strings.feed_hidden(text);
    return ahead.stop_strings.matched() ? confirm() : std::string();
}

std::string GeneratedText::confirm() {
    std::string passed = std::move(m_ahead->passed);
    m_stop_strings = std::move(m_ahead->stop_strings);
    m_ahead.reset();
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

}  // namespace pagewheel
