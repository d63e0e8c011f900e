// Reasoning and tool calls in generated texts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "openvino/genai/names.hpp"
#include "pagewheel/parsers.hpp"

namespace pagewheel::openvino_genai {

/// pagewheel::Parser, but the message is a JsonContainer.
class Parser : public pagewheel::Parser {
public:
    virtual void parse(JsonContainer& message) = 0;
    void parse(std::string& message_json) final {
        JsonContainer message = JsonContainer::from_json_string(message_json);
        parse(message);
        message_json = message.to_json_string();
    }
};

/// pagewheel::IncrementalParser, but the delta is a JsonContainer. parse() may take a part of the
/// text away, and what it returns is content.
class IncrementalParser : public pagewheel::IncrementalParser {
public:
    using Tokens = std::optional<std::vector<int64_t>>;

    virtual std::string parse(JsonContainer& delta_message, std::string& delta_text,
                              const Tokens& delta_tokens = std::nullopt) = 0;
    std::string parse(std::string& delta_json, const std::string& delta_text,
                      const Tokens& delta_tokens = {}) final {
        JsonContainer delta = JsonContainer::from_json_string(delta_json);
        std::string text = delta_text;
        std::string content = parse(delta, text, delta_tokens);
        delta_json = delta.to_json_string();
        return content;
    }
};

/// One of pagewheel's parsers as openvino_genai has it.
template <class Ours>
class ParserOf : public Parser {
public:
    template <class... Arguments>
    explicit ParserOf(Arguments&&... arguments) : m_parser(std::forward<Arguments>(arguments)...) {}

    using Parser::parse;
    void parse(JsonContainer& message) override {
        std::string json = message.to_json_string();
        m_parser.parse(json);
        message = JsonContainer::from_json_string(json);
    }
    bool needs_special_tokens() const override { return m_parser.needs_special_tokens(); }

private:
    Ours m_parser;
};

template <class Ours>
class IncrementalParserOf : public IncrementalParser {
public:
    template <class... Arguments>
    explicit IncrementalParserOf(Arguments&&... arguments)
        : m_parser(std::forward<Arguments>(arguments)...) {}

    using IncrementalParser::parse;
    std::string parse(JsonContainer& delta_message, std::string& delta_text,
                      const Tokens& delta_tokens = std::nullopt) override {
        std::string json = delta_message.to_json_string();
        std::string content = m_parser.parse(json, delta_text, delta_tokens);
        delta_message = JsonContainer::from_json_string(json);
        return content;
    }
    std::string finish(std::string& delta_json) override { return m_parser.finish(delta_json); }
    void reset() override { m_parser.reset(); }
    bool needs_special_tokens() const override { return m_parser.needs_special_tokens(); }

private:
    Ours m_parser;
};

class ReasoningParser : public ParserOf<pagewheel::ReasoningParser> {
public:
    explicit ReasoningParser(bool expect_open_tag = true, bool keep_original_content = true,
                             const std::string& open_tag = "<think>",
                             const std::string& close_tag = "</think>")
        : ParserOf(pagewheel::ReasoningOptions{expect_open_tag, keep_original_content, open_tag,
                                               close_tag}) {}
};
class ReasoningIncrementalParser
    : public IncrementalParserOf<pagewheel::ReasoningIncrementalParser> {
public:
    explicit ReasoningIncrementalParser(bool expect_open_tag = true,
                                        bool keep_original_content = true,
                                        const std::string& open_tag = "<think>",
                                        const std::string& close_tag = "</think>")
        : IncrementalParserOf(pagewheel::ReasoningOptions{expect_open_tag, keep_original_content,
                                                          open_tag, close_tag}) {}
};

class DeepSeekR1ReasoningParser : public ReasoningParser {
public:
    explicit DeepSeekR1ReasoningParser(bool expect_open_tag = false)
        : ReasoningParser(expect_open_tag) {}
};
class DeepSeekR1ReasoningIncrementalParser : public ReasoningIncrementalParser {
public:
    explicit DeepSeekR1ReasoningIncrementalParser(bool expect_open_tag = false)
        : ReasoningIncrementalParser(expect_open_tag) {}
};
class Phi4ReasoningParser : public ReasoningParser {
    using ReasoningParser::ReasoningParser;
};
class Phi4ReasoningIncrementalParser : public ReasoningIncrementalParser {
    using ReasoningIncrementalParser::ReasoningIncrementalParser;
};
class Llama3JsonToolParser : public ParserOf<pagewheel::Llama3JsonToolParser> {};
class Llama3PythonicToolParser : public ParserOf<pagewheel::Llama3PythonicToolParser> {};

/// pagewheel::TextParserStreamer, but messages are JsonContainers.
class TextParserStreamer : public pagewheel::TextParserStreamer {
public:
    explicit TextParserStreamer(const Tokenizer& tokenizer,
                                const std::vector<std::shared_ptr<IncrementalParser>>& parsers = {})
        : pagewheel::TextParserStreamer(tokenizer, {parsers.begin(), parsers.end()}) {}

    using pagewheel::TextParserStreamer::write;
    virtual StreamingStatus write(JsonContainer& message) = 0;
    StreamingStatus write(const std::string& delta_json) final {
        JsonContainer message = JsonContainer::from_json_string(delta_json);
        return write(message);
    }
    JsonContainer get_parsed_message() const {
        return JsonContainer::from_json_string(pagewheel::TextParserStreamer::get_parsed_message());
    }
};

}  // namespace pagewheel::openvino_genai
