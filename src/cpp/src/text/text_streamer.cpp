#include <utility>

#include "pagewheel/streamer.hpp"
#include "text/incremental_detokenizer.hpp"
#include "text/stop_strings.hpp"

namespace pagewheel {

struct TextStreamer::Impl {
    Callback callback;
    IncrementalDetokenizer detokenizer;
    StopStrings stop_strings;
};

TextStreamer::TextStreamer(const Tokenizer& tokenizer, Callback callback, bool skip_special_tokens)
    : m_impl(new Impl{std::move(callback),
                      IncrementalDetokenizer([=](const std::vector<int64_t>& tokens) {
                          return tokenizer.decode_generated(tokens, skip_special_tokens);
                      }),
                      {}}) {}

TextStreamer::~TextStreamer() = default;

void TextStreamer::set_stop_strings(const std::set<std::string>& stop_strings,
                                    bool include_stop_string) {
    m_impl->stop_strings = StopStrings(stop_strings, include_stop_string);
}

StreamingStatus TextStreamer::write(const std::vector<int64_t>& tokens) {
    std::string text;
    for (int64_t token : tokens)
        text += m_impl->stop_strings.feed(m_impl->detokenizer.append(token));
    return emit(text);
}

void TextStreamer::end() {
    std::string text = m_impl->stop_strings.feed(m_impl->detokenizer.flush());
    text += m_impl->stop_strings.flush();
    m_impl->stop_strings = {};
    emit(text);
}

StreamingStatus TextStreamer::emit(const std::string& text) {
    return text.empty() ? StreamingStatus::RUNNING : m_impl->callback(text);
}

}  // namespace pagewheel
