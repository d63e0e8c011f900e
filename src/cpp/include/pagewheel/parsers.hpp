// Reasoning and tool calls in generated texts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pagewheel/streamer.hpp"
#include "pagewheel/visibility.hpp"

namespace pagewheel {

/// Parses whole texts. One object may serve several threads.
class PAGEWHEEL_API Parser {
public:
    virtual ~Parser() = default;
    /// The message is a JSON object with the text as "content"; what is found in it is put beside
    /// that. Parsers may be applied one after the other.
    virtual void parse(std::string& message_json) = 0;
    /// The text must have been decoded with its special tokens.
    virtual bool needs_special_tokens() const { return false; }
};

/// Parses one text as it comes, piece by piece.
class PAGEWHEEL_API IncrementalParser {
public:
    virtual ~IncrementalParser() = default;
    /// Puts what is found in the next piece into the delta, a JSON object, and returns what of the
    /// text goes to the next parser, or into the delta as "content". A piece has whole characters.
    virtual std::string parse(std::string& delta_message_json, const std::string& delta_text,
                              const std::optional<std::vector<int64_t>>& delta_tokens = {}) = 0;
    /// Parses the text that was held back, when no more follows.
    virtual std::string finish(std::string& /*delta_message_json*/) { return {}; }
    /// Begins anew, for the next text.
    virtual void reset() = 0;
    /// The text must be decoded with its special tokens.
    virtual bool needs_special_tokens() const { return false; }

    /// What the streamer answers after this piece.
    StreamingStatus get_status() const { return m_status; }
    void set_status(StreamingStatus status) { m_status = status; }

private:
    StreamingStatus m_status = StreamingStatus::RUNNING;
};

/// Parses texts in which a message's parts are marked. Its subclasses say how.
class PAGEWHEEL_API MarkedTextParser : public Parser {
public:
    ~MarkedTextParser() override;
    void parse(std::string& message_json) override;
    bool needs_special_tokens() const override;

protected:
    struct Impl;
    explicit MarkedTextParser(std::unique_ptr<Impl> impl);

private:
    std::unique_ptr<Impl> m_impl;
};

/// MarkedTextParser for a stream.
class PAGEWHEEL_API MarkedTextIncrementalParser : public IncrementalParser {
public:
    ~MarkedTextIncrementalParser() override;
    std::string parse(std::string& delta_message_json, const std::string& delta_text,
                      const std::optional<std::vector<int64_t>>& delta_tokens = {}) override;
    std::string finish(std::string& delta_message_json) override;
    void reset() override;
    bool needs_special_tokens() const override;

protected:
    struct Impl;
    explicit MarkedTextIncrementalParser(std::unique_ptr<Impl> impl);

private:
    std::unique_ptr<Impl> m_impl;
};

/// How the reasoning of a model is marked in its text.
struct ReasoningOptions {
    /// False: the text begins within it, because the prompt has the opening tag. One that stands at
    /// the beginning all the same is not part of it.
    bool expect_open_tag = true;
    bool keep_original_content = true;  ///< The content is the whole text; else without reasoning.
    std::string open_tag = "<think>";
    std::string close_tag = "</think>";
};

/// "reasoning_content": the text between the first two tags, or to the end of the text.
class PAGEWHEEL_API ReasoningParser : public MarkedTextParser {
public:
    /// Throws InvalidArgument if a tag that is needed is empty.
    explicit ReasoningParser(ReasoningOptions options = {});
};

class PAGEWHEEL_API ReasoningIncrementalParser : public MarkedTextIncrementalParser {
public:
    /// Throws InvalidArgument if a tag that is needed is empty.
    explicit ReasoningIncrementalParser(ReasoningOptions options = {});
};

/// <think>, whose opening tag is in the prompt.
class PAGEWHEEL_API DeepSeekR1ReasoningParser : public ReasoningParser {
public:
    DeepSeekR1ReasoningParser();
};
class PAGEWHEEL_API DeepSeekR1ReasoningIncrementalParser : public ReasoningIncrementalParser {
public:
    DeepSeekR1ReasoningIncrementalParser();
};

/// <think>, whose opening tag is in the text.
class PAGEWHEEL_API Phi4ReasoningParser : public ReasoningParser {};
class PAGEWHEEL_API Phi4ReasoningIncrementalParser : public ReasoningIncrementalParser {};

/// "tool_calls": each JSON object with a name and "parameters" or "arguments", as the model wrote
/// it. The content stays.
class PAGEWHEEL_API Llama3JsonToolParser : public Parser {
public:
    void parse(std::string& message_json) override;
};

/// "tool_calls": each call of [f(a=1), g()] as {"name": ..., "arguments": {...}}. The content
/// stays.
class PAGEWHEEL_API Llama3PythonicToolParser : public Parser {
public:
    void parse(std::string& message_json) override;
};

/// What a text of a family is parsed with.
struct ToolCallOptions {
    /// A JSON array as in ChatHistory. Families that write values without quotes ("qwen3_coder",
    /// "glm", "seed") ask it which parameters are texts; "3" may be a text or a number.
    std::string tools_json = "[]";
    /// The prompt ended with the tag that opens reasoning.
    bool starts_in_reasoning = false;
    /// For streams: TOOL_CALL_STOP after the first whole call, and nothing of what follows it.
    bool stop_after_call = false;
};

/// Reasoning and tool calls of a family of models (parser_families()).
///
/// "reasoning_content" and "tool_calls" are there if the text has any, and "content" is the rest. A
/// call is {"id"?, "type": "function", "function": {"name", "arguments"}}; arguments are a text, as
/// OpenAI has it, which is a JSON object. Has the call "complete": false, then its arguments were
/// cut off or are no JSON, and end there. The id is there if the text has one.
class PAGEWHEEL_API ToolCallParser : public MarkedTextParser {
public:
    /// Throws InvalidArgument that lists the families, or names what is wrong with the tools.
    explicit ToolCallParser(const std::string& family, const ToolCallOptions& options = {});
};

/// ToolCallParser for a stream: "tool_calls" of a delta are pieces. Each has the "index" of its
/// call; the first one has its name, and joined the arguments are those of ToolCallParser.
class PAGEWHEEL_API ToolCallIncrementalParser : public MarkedTextIncrementalParser {
public:
    explicit ToolCallIncrementalParser(const std::string& family,
                                       const ToolCallOptions& options = {});
};

/// A family that ToolCallParser knows.
struct ParserFamily {
    std::string name;
    std::string models;  ///< whose, in words
    bool needs_special_tokens = false;
};
PAGEWHEEL_API std::vector<ParserFamily> parser_families();

/// The family of the models that have this chat template, by the markers in it.
PAGEWHEEL_API std::optional<std::string> detect_parser(const std::string& chat_template);

/// A streamer of parsed messages: text goes through the parsers, and what they make of it to
/// write(). Special tokens are in the text if a parser needs them.
class PAGEWHEEL_API TextParserStreamer : public TextStreamer {
public:
    TextParserStreamer(const Tokenizer& tokenizer,
                       std::vector<std::shared_ptr<IncrementalParser>> parsers = {});
    ~TextParserStreamer() override;

    /// A delta: a JSON object with the new "content", which may be empty, and what parsers found.
    virtual StreamingStatus write(const std::string& delta_message_json) = 0;

    StreamingStatus write(const std::vector<int64_t>& tokens) override;
    /// A piece of text in the place of tokens.
    StreamingStatus write_text(const std::string& text);
    void end() override;
    void begin(const GenerationConfig& config) override;

    /// The deltas so far as one JSON object: texts and lists are joined, "tool_calls" by their
    /// index, and of other values the latest stays.
    std::string get_parsed_message() const;
    /// Begins the next text: the message is empty, and the parsers begin anew.
    void reset();

private:
    StreamingStatus deliver(const std::string& delta_json, const std::string& content);

    struct Impl;
    std::unique_ptr<Impl> m_parse;
};

}  // namespace pagewheel
