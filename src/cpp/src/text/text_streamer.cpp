#include <utility>

#include "pagewheel/streamer.hpp"
#include "text/generated_text.hpp"

namespace pagewheel {

struct TextStreamer::Impl {
    Callback callback;
    GeneratedText::Decoders decoders;
    GeneratedText text;
};

TextStreamer::TextStreamer(const Tokenizer& tokenizer, Callback callback, bool skip_special_tokens)
    : m_impl(new Impl{std::move(callback), decoders_of(tokenizer, skip_special_tokens),
                      GeneratedText(decoders_of(tokenizer, skip_special_tokens))}) {}

TextStreamer::~TextStreamer() = default;

void TextStreamer::set_stop_strings(const std::set<std::string>& stop_strings,
                                    bool include_stop_string) {
    m_impl->text = GeneratedText(m_impl->decoders, StopStrings(stop_strings, include_stop_string));
}

StreamingStatus TextStreamer::write(const std::vector<int64_t>& tokens) {
    std::string text;
    for (int64_t token : tokens) text += m_impl->text.append(token);
    return emit(text);
}

void TextStreamer::end() {
    emit(m_impl->text.flush());
}

StreamingStatus TextStreamer::emit(const std::string& text) {
    return text.empty() ? StreamingStatus::RUNNING : m_impl->callback(text);
}

}  // namespace pagewheel
