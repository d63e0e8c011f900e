#include "text/generated_text.hpp"

#include <utility>

namespace pagewheel {

GeneratedText::GeneratedText(Decoders decoders, StopStrings stop_strings)
    : m_decoders(std::move(decoders)),
      m_detokenizer(m_decoders.shown),
      m_stop_strings(std::move(stop_strings)) {}

std::string GeneratedText::append(int64_t token) {
    const std::string text = m_detokenizer.append(token);
    if (m_detokenizer.latest_has_text()) return m_stop_strings.feed(text);
    const std::string hidden = hidden_text(token);
    if (hidden.empty()) return {};
    m_detokenizer.forget_latest();
    return m_stop_strings.feed_hidden(hidden);
}

std::string GeneratedText::flush() {
    std::string text = m_stop_strings.feed(m_detokenizer.flush());
    text += m_stop_strings.flush();
    m_stop_strings = {};
    return text;
}

std::string GeneratedText::hidden_text(int64_t token) const {
    // Twice, because a lone space may be dropped at the start of text.
    const std::vector<int64_t> twice{token, token};
    return m_decoders.shown(twice).empty() ? m_decoders.verbatim({token}) : std::string();
}

GeneratedText::Decoders decoders_of(const Tokenizer& tokenizer, bool skip_special_tokens) {
    const auto decode = [&](bool skip) {
        return [=](const std::vector<int64_t>& tokens) {
            return tokenizer.decode_generated(tokens, skip);
        };
    };
    return {decode(skip_special_tokens), decode(false)};
}

std::string text_of(const Tokenizer& tokenizer, const std::vector<int64_t>& tokens,
                    const StopStrings& stop_strings) {
    if (stop_strings.empty()) return tokenizer.decode_generated(tokens);
    GeneratedText text(decoders_of(tokenizer), stop_strings);
    std::string joined;
    for (int64_t token : tokens) joined += text.append(token);
    return joined + text.flush();
}

}  // namespace pagewheel
