#include <algorithm>
#include <utility>

#include "model/json_file.hpp"
#include "pagewheel/parsers.hpp"
#include "parsing/messages.hpp"

namespace pagewheel {
namespace {

using Parsers = std::vector<std::shared_ptr<IncrementalParser>>;

const Parsers& checked(const Parsers& parsers) {
    for (const auto& parser : parsers)
        check_argument(parser != nullptr, "a parser is null; allowed: parsers");
    return parsers;
}

bool skips_special_tokens(const Parsers& parsers) {
    return std::none_of(parsers.begin(), parsers.end(),
                        [](const auto& parser) { return parser->needs_special_tokens(); });
}

}  // namespace

struct TextParserStreamer::Impl {
    Parsers parsers;
    nlohmann::ordered_json message;
    std::vector<int64_t> tokens;  // since the latest text
};

TextParserStreamer::TextParserStreamer(const Tokenizer& tokenizer, Parsers parsers)
    : TextStreamer(
          tokenizer, [this](const std::string& text) { return write_text(text); },
          skips_special_tokens(checked(parsers))),
      m_parse(new Impl{std::move(parsers), {{"content", ""}}, {}}) {}

TextParserStreamer::~TextParserStreamer() = default;

StreamingStatus TextParserStreamer::write(const std::vector<int64_t>& tokens) {
    m_parse->tokens.insert(m_parse->tokens.end(), tokens.begin(), tokens.end());
    return TextStreamer::write(tokens);
}

StreamingStatus TextParserStreamer::write_text(const std::string& text) {
    const std::vector<int64_t> tokens = std::exchange(m_parse->tokens, {});
    std::string delta = "{}", rest = text;
    StreamingStatus wish = StreamingStatus::RUNNING;
    for (const auto& parser : m_parse->parsers) {
        rest = parser->parse(delta, rest, tokens);
        wish = parser->get_status();
        if (wish != StreamingStatus::RUNNING) break;
    }
    const StreamingStatus answer = deliver(delta, rest);
    return wish == StreamingStatus::RUNNING ? answer : wish;
}

void TextParserStreamer::end() {
    TextStreamer::end();
    std::string delta = "{}", rest;
    for (const auto& parser : m_parse->parsers) {
        if (!rest.empty()) rest = parser->parse(delta, rest);
        rest += parser->finish(delta);
    }
    if (delta != "{}" || !rest.empty()) deliver(delta, rest);
}

StreamingStatus TextParserStreamer::deliver(const std::string& delta_json,
                                            const std::string& content) {
    nlohmann::ordered_json delta = parsed_message(delta_json);
    delta["content"] = content;
    merge_delta(delta, m_parse->message);
    return write(json_text(delta));
}

void TextParserStreamer::begin(const GenerationConfig& config) {
    TextStreamer::begin(config);
    try {
        reset();
    } catch (...) {  // of a parser
        release();
        throw;
    }
}

void TextParserStreamer::reset() {
    m_parse->message = {{"content", ""}};
    m_parse->tokens.clear();
    for (const auto& parser : m_parse->parsers) parser->reset();
}

std::string TextParserStreamer::get_parsed_message() const {
    return json_text(m_parse->message);
}

}  // namespace pagewheel
