#include <atomic>
#include <utility>

#include "base/check.hpp"
#include "pagewheel/errors.hpp"
#include "pagewheel/generation_config.hpp"
#include "pagewheel/streamer.hpp"
#include "text/generated_text.hpp"

namespace pagewheel {

namespace {

/// Marks the streamer as being at work for the length of a method.
class AtWork {
public:
    explicit AtWork(std::atomic<bool>& flag) : m_flag(flag) {
        if (flag.exchange(true))
            throw Error(
                "the TextStreamer is at work already: for another thread, or it was called from "
                "its own callback",
                ErrorCode::invalid_state);
    }
    ~AtWork() { m_flag = false; }
    AtWork(const AtWork&) = delete;
    AtWork& operator=(const AtWork&) = delete;

private:
    std::atomic<bool>& m_flag;
};

}  // namespace

struct TextStreamer::Impl {
    Callback callback;
    GeneratedText::Decoders decoders;
    GeneratedText text;
    std::atomic<bool> is_taken{false};    // by a generate()
    std::atomic<bool> is_at_work{false};  // in one of its methods

    Impl(Callback callback, GeneratedText::Decoders decoders)
        : callback(std::move(callback)), decoders(decoders), text(std::move(decoders)) {}

    template <class Make>
    void begin(const Make& make) {
        if (is_taken.exchange(true))
            throw Error("the streamer is in use by another generate()", ErrorCode::invalid_state);
        try {
            const AtWork work(is_at_work);
            text = make();
        } catch (...) {
            is_taken = false;
            throw;
        }
    }
};

TextStreamer::TextStreamer(const Tokenizer& tokenizer, Callback callback, bool skip_special_tokens)
    : m_impl(new Impl(std::move(callback), decoders_of(tokenizer, skip_special_tokens))) {}

TextStreamer::~TextStreamer() = default;

bool TextStreamer::skip_special_tokens_of(const ov::AnyMap& properties) {
    bool skip = true;
    for (const auto& [name, value] : properties) {
        check_argument(name == "skip_special_tokens", "unknown property of a TextStreamer '",
                       ParameterName(name), "'; known: skip_special_tokens");
        check_argument(value.is<bool>(), ParameterName("skip_special_tokens"), " is ",
                       value.as<std::string>(), "; allowed: true, false");
        skip = value.as<bool>();
    }
    return skip;
}

void TextStreamer::begin(const GenerationConfig& config) {
    m_impl->begin([&] { return GeneratedText(m_impl->decoders, StopStrings(config)); });
}

void TextStreamer::release() noexcept {
    m_impl->is_taken = false;
}

StreamingStatus TextStreamer::write(const std::vector<int64_t>& tokens) {
    const AtWork work(m_impl->is_at_work);
    std::string text;
    for (int64_t token : tokens) text += m_impl->text.append(token);
    return emit(text);
}

StreamingStatus TextStreamer::write(int64_t token) {
    return write(std::vector{token});
}

void TextStreamer::end() {
    const AtWork work(m_impl->is_at_work);
    emit(m_impl->text.flush());
}

StreamingStatus TextStreamer::emit(const std::string& text) {
    return text.empty() ? StreamingStatus::RUNNING : m_impl->callback(text);
}

StreamingStatus OutputStreamer::write(const std::vector<int64_t>& tokens) {
    StreamedOutput streamed;
    streamed.output.generated_ids = tokens;
    return write_output(streamed);
}

}  // namespace pagewheel
