// Parsers of whole texts and of streams, and one of the program's own.
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "check.hpp"
#include "openvino/genai/llm_pipeline.hpp"
#include "openvino/genai/parsers.hpp"

namespace {

class Length : public ov::genai::Parser {
public:
    using Parser::parse;
    void parse(ov::genai::JsonContainer& message) override {
        message["length"] = int64_t(message["content"].get_string().size());
    }
};

class Spaces : public ov::genai::IncrementalParser {
public:
    using IncrementalParser::parse;
    std::string parse(ov::genai::JsonContainer&, std::string& delta_text, const Tokens&) override {
        for (const char character : delta_text) count += character == ' ';
        return delta_text;
    }
    void reset() override { count = 0; }

    size_t count = 0;
};

class Streamer : public ov::genai::TextParserStreamer {
public:
    using TextParserStreamer::TextParserStreamer;
    using TextParserStreamer::write;
    ov::genai::StreamingStatus write(ov::genai::JsonContainer& message) override {
        text += message["content"].get_string();
        return ov::genai::StreamingStatus::RUNNING;
    }

    std::string text;
};

ov::genai::JsonContainer message_of(const std::string& content) {
    ov::genai::JsonContainer message = ov::genai::JsonContainer::object();
    message["content"] = content;
    return message;
}

}  // namespace

void parse(char* argv[]) {
    ov::genai::JsonContainer message = message_of("<think>why</think>so");
    ov::genai::ReasoningParser(true, false).parse(message);
    CHECK(message["reasoning_content"].get_string() == "why");
    CHECK(message["content"].get_string() == "so");
    message = message_of("[f(a=1)]");
    ov::genai::Llama3PythonicToolParser().parse(message);
    CHECK(message["tool_calls"][0]["name"].get_string() == "f");

    ov::genai::DeepSeekR1ReasoningIncrementalParser reasoning;
    ov::genai::JsonContainer delta = ov::genai::JsonContainer::object();
    std::string piece = "why</think>so";
    reasoning.parse(delta, piece);
    CHECK(delta["reasoning_content"].get_string() == "why");

    ov::genai::LLMPipeline pipe(argv[1], "CPU");
    const auto spaces = std::make_shared<Spaces>();
    const auto streamer = std::make_shared<Streamer>(
        pipe.get_tokenizer(), std::vector<std::shared_ptr<ov::genai::IncrementalParser>>{spaces});
    ov::genai::GenerationConfig config = pipe.get_generation_config();
    config.max_new_tokens = 6;
    config.parsers.push_back(std::make_shared<Length>());
    const ov::genai::DecodedResults results = pipe.generate(argv[2], config, streamer);
    CHECK(streamer->text == results.texts[0] && spaces->count > 0);
    CHECK(streamer->get_parsed_message()["content"].get_string() == results.texts[0]);
    CHECK(results.parsed.size() == 1);
}
