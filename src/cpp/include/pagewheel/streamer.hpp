// Receiving tokens or text while they are generated.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "pagewheel/errors.hpp"
#include "pagewheel/generation_handle.hpp"
#include "pagewheel/tokenizer.hpp"
#include "pagewheel/visibility.hpp"

namespace pagewheel {

struct GenerationConfig;

/// What a streamer answers: go on; end and keep what there is; end and drop the request; STOP, of
/// which the finish reason is TOOL_CALL.
enum class StreamingStatus { RUNNING = 0, STOP = 1, CANCEL = 2, TOOL_CALL_STOP = 3 };

using TextCallback = std::function<StreamingStatus(const std::string& text)>;

/// A TextCallback of anything that takes a text. It may answer a StreamingStatus, a bool, where
/// true is STOP, a std::variant of the two, or nothing.
template <class F>
TextCallback text_callback(F callback) {
    using Answer = std::invoke_result_t<F&, const std::string&>;
    return [callback = std::move(callback)](const std::string& text) mutable {
        if constexpr (std::is_void_v<Answer>) {
            callback(text);
            return StreamingStatus::RUNNING;
        } else if constexpr (std::is_convertible_v<Answer, StreamingStatus>) {
            return StreamingStatus(callback(text));
        } else if constexpr (std::is_convertible_v<Answer, bool>) {
            return callback(text) ? StreamingStatus::STOP : StreamingStatus::RUNNING;
        } else {
            const std::variant<bool, StreamingStatus> answer = callback(text);
            if (const auto* stop = std::get_if<bool>(&answer))
                return *stop ? StreamingStatus::STOP : StreamingStatus::RUNNING;
            return std::get<StreamingStatus>(answer);
        }
    };
}
template <class Answer, class Text>
TextCallback text_callback(std::function<Answer(Text)> callback) {
    if (!callback) return {};
    return text_callback(
        [callback = std::move(callback)](const std::string& text) { return callback(text); });
}

/// Enables a template for what text_callback() takes, and TextCallback does not.
template <class F>
using IfOtherCallback =
    std::enable_if_t<std::is_invocable_v<F&, const std::string&> &&
                     !std::is_invocable_r_v<StreamingStatus, F&, const std::string&>>;

/// Receives the tokens of one sequence, on the thread that called generate(); it may call
/// everything. An exception thrown from it cancels the request and reaches the caller of
/// generate().
class PAGEWHEEL_API StreamerBase {
public:
    virtual ~StreamerBase() = default;
    /// New tokens, at least one. A streamer that does not define it gets them one by one.
    virtual StreamingStatus write(const std::vector<int64_t>& tokens) {
        for (const int64_t token : tokens)
            if (const auto answer = write(token); answer != StreamingStatus::RUNNING) return answer;
        return StreamingStatus::RUNNING;
    }
    /// One token. A streamer must define one of the two.
    virtual StreamingStatus write(int64_t /*token*/) {
        throw Error("a StreamerBase must define write()");
    }
    /// Called after the last token, unless the request was cancelled by an exception.
    virtual void end() = 0;
};

/// Turns tokens into text and hands it to a callback, never half a character of UTF-8. It serves
/// one generate() at a time, and any number in turn; a call from another thread, or from the
/// callback, while it is at work throws Error.
class PAGEWHEEL_API TextStreamer : public StreamerBase {
public:
    using Callback = TextCallback;

    TextStreamer(const Tokenizer& tokenizer, Callback callback, bool skip_special_tokens = true);
    template <class F, class = IfOtherCallback<F>>
    TextStreamer(const Tokenizer& tokenizer, F callback, bool skip_special_tokens = true)
        : TextStreamer(tokenizer, text_callback(std::move(callback)), skip_special_tokens) {}
    /// `properties` may hold "skip_special_tokens"; another is an InvalidArgument.
    template <class F>
    TextStreamer(const Tokenizer& tokenizer, F callback, const ov::AnyMap& properties)
        : TextStreamer(tokenizer, text_callback(std::move(callback)),
                       skip_special_tokens_of(properties)) {}
    ~TextStreamer() override;

    StreamingStatus write(const std::vector<int64_t>& tokens) override;
    StreamingStatus write(int64_t token) override;
    void end() override;

    /// generate() calls it before the first token: nothing is left of earlier ones. Text from a
    /// stop string of the config on is not handed out (or from its end on, if it is to be
    /// included), and text that may be the beginning of one is held back. Throws Error until
    /// release() if another generate() has the streamer.
    virtual void begin(const GenerationConfig& config);
    /// generate() calls it in the end, also where it failed.
    void release() noexcept;

private:
    static bool skip_special_tokens_of(const ov::AnyMap& properties);
    StreamingStatus emit(const std::string& text);

    struct Impl;
    std::unique_ptr<Impl> m_impl;
};

/// What is new of one sequence.
struct StreamedOutput {
    size_t prompt = 0;    ///< index of its prompt in the call
    size_t sequence = 0;  ///< index among its prompt's, 0 .. num_return_sequences - 1
    /// What GenerationHandle::read() gives, with text: tokens, log-probabilities, the text that
    /// became certain, and a finish reason once. With echo the prompt is not in it.
    GenerationOutput output;
};

/// Hands the new output of every sequence of a generate() to a callback, of several prompts or
/// num_return_sequences too, after each step in the order of prompts and sequences. What the
/// callback answers is for all sequences of that prompt.
class PAGEWHEEL_API OutputStreamer : public StreamerBase {
public:
    using Callback = std::function<StreamingStatus(const StreamedOutput& output)>;

    explicit OutputStreamer(Callback callback) : m_callback(std::move(callback)) {}

    StreamingStatus write_output(const StreamedOutput& output) { return m_callback(output); }
    /// Tokens by themselves, as of the first sequence.
    StreamingStatus write(const std::vector<int64_t>& tokens) override;
    void end() override {}

private:
    Callback m_callback;
};

/// None, a callback that gets text (any that text_callback() takes), or a streamer of the caller's.
struct StreamerVariant
    : std::variant<std::monostate, TextStreamer::Callback, std::shared_ptr<StreamerBase>> {
    using variant =
        std::variant<std::monostate, TextStreamer::Callback, std::shared_ptr<StreamerBase>>;
    using variant::variant;

    template <class F, class = IfOtherCallback<F>>
    StreamerVariant(F callback) : variant(text_callback(std::move(callback))) {}
};

}  // namespace pagewheel
