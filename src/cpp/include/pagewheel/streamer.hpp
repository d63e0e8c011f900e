// Receiving tokens or text while they are generated.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "pagewheel/tokenizer.hpp"
#include "pagewheel/visibility.hpp"

namespace pagewheel {

/// What a streamer answers: go on; end and keep what there is; end and drop the request; STOP, of
/// which the finish reason is TOOL_CALL.
enum class StreamingStatus { RUNNING = 0, STOP = 1, CANCEL = 2, TOOL_CALL_STOP = 3 };

/// Receives the tokens of one sequence, on the thread that called generate(); it may call
/// everything. An exception thrown from it cancels the request and reaches the caller of
/// generate().
class PAGEWHEEL_API StreamerBase {
public:
    virtual ~StreamerBase() = default;
    /// New tokens, at least one.
    virtual StreamingStatus write(const std::vector<int64_t>& tokens) = 0;
    /// After the last token, unless the request was cancelled by an exception.
    virtual void end() = 0;
};

/// Turns tokens into text and hands it to a callback, never half a character of UTF-8. It serves
/// one generate() at a time, and any number in turn; a call from another thread, or from the
/// callback, while it is at work throws std::runtime_error.
class PAGEWHEEL_API TextStreamer : public StreamerBase {
public:
    using Callback = std::function<StreamingStatus(const std::string& text)>;

    TextStreamer(const Tokenizer& tokenizer, Callback callback, bool skip_special_tokens = true);
    ~TextStreamer() override;

    StreamingStatus write(const std::vector<int64_t>& tokens) override;
    void end() override;

    /// For generate(), before the first token: nothing is left of earlier ones. Text from a stop
    /// string on is not handed out (or from its end on, if it is to be included), and text that may
    /// be the beginning of one is held back. Throws std::runtime_error until release() if another
    /// generate() has the streamer.
    void begin(const std::set<std::string>& stop_strings, bool include_stop_string);
    /// For generate(), in the end, also where it failed.
    void release() noexcept;

private:
    StreamingStatus emit(const std::string& text);

    struct Impl;
    std::unique_ptr<Impl> m_impl;
};

/// None, a callback that gets text, or a streamer of the caller's.
using StreamerVariant =
    std::variant<std::monostate, TextStreamer::Callback, std::shared_ptr<StreamerBase>>;

}  // namespace pagewheel
