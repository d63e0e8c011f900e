// The public parsers: what a stream parser finds, put into JSON messages.
#include "pagewheel/parsers.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/check.hpp"
#include "model/json_file.hpp"
#include "parsing/stream_parser.hpp"
#include "text/utf8.hpp"

namespace pagewheel {
namespace {

using json = nlohmann::ordered_json;

void append(json& value, const std::string& text) {
    if (value.is_string())
        value.get_ref<json::string_t&>() += text;
    else
        value = text;
}

void put_id(const std::string& id, json& call) {
    if (!id.empty()) call["id"] = replace_invalid_utf8(id);
}

bool has_index(const json& value) {
    return value.is_object() && value.contains("index") && value["index"].is_number_unsigned();
}

/// A message that a parser is given: an object. Throws InvalidArgument otherwise.
json parsed_message(const std::string& text) {
    json message = parse_ordered_json(text, "a message");
    check_argument(message.is_object(), "a message is ", text, "; allowed: a JSON object");
    return message;
}

/// Its text. Throws InvalidArgument where it has none.
std::string content_of(const json& message) {
    const auto content = message.find("content");
    check_argument(content != message.end() && content->is_string(), "a message has content ",
                   content == message.end() ? "" : json_text(*content), "; allowed: a text");
    return *content;
}

}  // namespace

/// Puts pieces of reasoning and calls into deltas, one after the other.
class DeltaWriter {
public:
    /// Returns the content.
    std::string put(const std::vector<ParseEvent>& events, json& delta) {
        std::string content;
        const auto has = [&](auto... kinds) {
            return std::any_of(events.begin(), events.end(), [&](const ParseEvent& event) {
                return ((event.kind == kinds) || ...);
            });
        };
        // If the delta is that of an earlier piece, what it held was given out then.
        if (has(ParseEvent::Kind::REASONING)) delta.erase("reasoning_content");
        if (has(ParseEvent::Kind::CALL_BEGIN, ParseEvent::Kind::ARGUMENTS,
                ParseEvent::Kind::CALL_END))
            delta.erase("tool_calls");
        for (const ParseEvent& event : events) {
            switch (event.kind) {
                case ParseEvent::Kind::CONTENT:
                    content += event.text;
                    break;
                case ParseEvent::Kind::REASONING:
                    append(delta["reasoning_content"], replace_invalid_utf8(event.text));
                    break;
                case ParseEvent::Kind::CALL_BEGIN: {
                    ++m_num_calls;
                    json& begun = call(delta);
                    put_id(event.id, begun);
                    begun["type"] = "function";
                    begun["function"] = {{"name", replace_invalid_utf8(event.text)},
                                         {"arguments", ""}};
                    break;
                }
                case ParseEvent::Kind::ARGUMENTS:
                    append(call(delta)["function"]["arguments"], replace_invalid_utf8(event.text));
                    break;
                case ParseEvent::Kind::CALL_END:
                    if (event.complete) ++m_num_whole_calls;
                    if (!event.id.empty()) put_id(event.id, call(delta));
                    if (!event.complete) call(delta)["complete"] = false;
                    break;
            }
        }
        return content;
    }

    /// Calls that ended and are complete.
    size_t num_whole_calls() const { return m_num_whole_calls; }

private:
    json& call(json& delta) const {
        json& calls = delta["tool_calls"];
        if (!calls.is_array()) calls = json::array();
        const size_t index = m_num_calls - 1;
        const bool is_there =
            !calls.empty() && has_index(calls.back()) && calls.back()["index"] == index;
        if (!is_there) calls.push_back({{"index", index}});
        return calls.back();
    }

    size_t m_num_calls = 0, m_num_whole_calls = 0;
};

/// What a text is parsed with.
struct ParserSettings {
    MessageFormat format;
    StreamParser::Options options = {};
    bool keeps_content = false;         ///< Reasoning stays in the content.
    bool always_has_reasoning = false;  ///< A whole message has reasoning, which may be empty.
    bool stops_after_call = false;      ///< of a stream

    std::vector<ParseEvent> parse(const std::string& text) const {
        Events events;
        StreamParser parser(format, options);
        parser.feed(text, events);
        parser.finish(events);
        return events.take_all();
    }
};

struct MarkedTextParser::Impl : ParserSettings {};

/// Parses one text after the other, piece by piece.
struct MarkedTextIncrementalParser::Impl {
    explicit Impl(ParserSettings given) : settings(std::move(given)) { reset(); }

    /// Everything that it will tell was told.
    bool has_stopped() const { return settings.stops_after_call && m_writer.num_whole_calls() > 0; }

    void reset() {
        m_parser.emplace(settings.format, settings.options);
        m_writer = {};
    }
    /// Returns what of the text goes on.
    std::string feed(const std::string& text, std::string& delta_json) {
        Events events;
        m_parser->feed(text, events);
        std::string content = put(events, delta_json);
        return settings.keeps_content ? text : content;
    }
    std::string finish(std::string& delta_json) {
        Events events;
        m_parser->finish(events);
        std::string content = put(events, delta_json);
        return settings.keeps_content ? "" : content;
    }

    const ParserSettings settings;

private:
    std::string put(Events& parsed, std::string& delta_json) {
        json delta = parsed_message(delta_json);
        std::vector<ParseEvent> events = parsed.take_all();
        if (settings.stops_after_call) cut_after_call(events);
        std::string content = m_writer.put(events, delta);
        delta_json = json_text(delta);
        return content;
    }
    /// One piece of text may hold the end of the first call and what follows.
    void cut_after_call(std::vector<ParseEvent>& events) const {
        if (has_stopped()) return events.clear();
        const auto end = std::find_if(events.begin(), events.end(), [](const ParseEvent& event) {
            return event.kind == ParseEvent::Kind::CALL_END && event.complete;
        });
        if (end != events.end()) events.erase(end + 1, events.end());
    }

    std::optional<StreamParser> m_parser;
    DeltaWriter m_writer;
};

namespace {

/// Puts reasoning and calls into a whole message, and the rest in the place of its content.
void put_events(const std::vector<ParseEvent>& events, json& message) {
    json delta = json::object();
    message["content"] = replace_invalid_utf8(DeltaWriter().put(events, delta));
    if (delta.contains("reasoning_content"))
        message["reasoning_content"] = delta["reasoning_content"];
    if (!delta.contains("tool_calls")) return;
    json& all = message["tool_calls"];
    if (!all.is_array()) all = json::array();
    for (json& call : delta["tool_calls"]) {
        call.erase("index");
        all.push_back(std::move(call));
    }
}

/// A format with nothing but the tags.
ParserSettings settings_of(const ReasoningOptions& options) {
    check_argument(!options.close_tag.empty(), "close_tag is empty; allowed: any other text");
    check_argument(!options.open_tag.empty() || !options.expect_open_tag,
                   "open_tag is empty; allowed with expect_open_tag: any other text");
    ParserSettings settings;
    settings.format.reasoning = ReasoningTags{{}, {options.close_tag}};
    if (!options.open_tag.empty()) settings.format.reasoning->open = {options.open_tag};
    settings.options.starts_in_reasoning = !options.expect_open_tag;
    settings.options.reasons_once = true;
    settings.keeps_content = options.keep_original_content;
    settings.always_has_reasoning = true;
    return settings;
}

ReasoningOptions without_open_tag() {
    ReasoningOptions options;
    options.expect_open_tag = false;
    return options;
}

/// Which parameters are texts, where schemas say it in plain words.
ToolTypes tool_types(const std::string& tools_json) {
    const nlohmann::json tools = parse_json(tools_json, "the list of tools");
    check_argument(tools.is_array(), "tools must be an array, got ", tools_json);
    const nlohmann::json::json_pointer place("/parameters/properties");
    ToolTypes types;
    for (const nlohmann::json& tool : tools) {
        check_argument(tool.is_object(), "a tool must be an object, got ", json_text(tool));
        const nlohmann::json& function = tool.contains("function") ? tool["function"] : tool;
        if (!function.contains("name") || !function["name"].is_string()) continue;
        if (!function.contains(place) || !function[place].is_object()) continue;
        auto& is_text = types[function["name"]];
        for (const auto& [name, schema] : function[place].items())
            if (schema.contains("type") && schema["type"].is_string())
                is_text[name] = schema["type"] == "string";
    }
    return types;
}

ParserSettings settings_of(const std::string& family, const ToolCallOptions& options) {
    ParserSettings settings{find_message_format(family)};
    settings.options.types = tool_types(options.tools_json);
    settings.options.starts_in_reasoning = options.starts_in_reasoning;
    settings.stops_after_call = options.stop_after_call;
    return settings;
}

/// The length of the call that `text` begins with; 0 if that is none.
size_t call_length(std::string_view text) {
    const auto reader = make_unmarked_object_reader();
    Events events;
    for (size_t i = 0; i < text.size(); ++i) {
        const CallReader::Step step = reader->take(text[i], events);
        if (step == CallReader::Step::DONE) return i + 1;
        if (step != CallReader::Step::MORE) return 0;
        events.take_all();
    }
    return 0;
}

/// Joins a delta with the message so far: elements of lists with an index are merged with the ones
/// that have it.
void merge(const json& part, json& whole) {
    if (part.is_string() && whole.is_string()) {
        append(whole, part.get_ref<const json::string_t&>());
    } else if (part.is_object() && whole.is_object()) {
        for (const auto& [key, value] : part.items()) merge(value, whole[key]);
    } else if (part.is_array() && (whole.is_array() || whole.is_null())) {
        if (whole.is_null()) whole = json::array();
        for (const json& value : part) {
            if (!has_index(value)) {
                whole.push_back(value);
                continue;
            }
            const size_t index = std::min(value["index"].get<size_t>(), whole.size());
            json& element = whole[index];  // a new one behind the last
            if (!element.is_object()) element = json::object();
            merge(value, element);
            element.erase("index");
        }
    } else {
        whole = part;
    }
}

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

MarkedTextParser::MarkedTextParser(std::unique_ptr<Impl> impl) : m_impl(std::move(impl)) {}
MarkedTextParser::~MarkedTextParser() = default;

bool MarkedTextParser::needs_special_tokens() const {
    return m_impl->format.needs_special_tokens;
}

void MarkedTextParser::parse(std::string& message_json) {
    json message = parsed_message(message_json);
    const std::string content = content_of(message);
    if (m_impl->always_has_reasoning) message["reasoning_content"] = "";
    put_events(m_impl->parse(content), message);
    if (m_impl->keeps_content) message["content"] = content;
    message_json = json_text(message);
}

MarkedTextIncrementalParser::MarkedTextIncrementalParser(std::unique_ptr<Impl> impl)
    : m_impl(std::move(impl)) {}
MarkedTextIncrementalParser::~MarkedTextIncrementalParser() = default;

bool MarkedTextIncrementalParser::needs_special_tokens() const {
    return m_impl->settings.format.needs_special_tokens;
}

void MarkedTextIncrementalParser::reset() {
    m_impl->reset();
    set_status(StreamingStatus::RUNNING);
}

std::string MarkedTextIncrementalParser::parse(
    std::string& delta_message_json, const std::string& delta_text,
    const std::optional<std::vector<int64_t>>& /*delta_tokens*/) {
    std::string content = m_impl->feed(delta_text, delta_message_json);
    if (m_impl->has_stopped()) set_status(StreamingStatus::TOOL_CALL_STOP);
    return content;
}

std::string MarkedTextIncrementalParser::finish(std::string& delta_message_json) {
    return m_impl->finish(delta_message_json);
}

ReasoningParser::ReasoningParser(ReasoningOptions options)
    : MarkedTextParser(std::make_unique<Impl>(Impl{settings_of(options)})) {}
ReasoningIncrementalParser::ReasoningIncrementalParser(ReasoningOptions options)
    : MarkedTextIncrementalParser(std::make_unique<Impl>(settings_of(options))) {}

DeepSeekR1ReasoningParser::DeepSeekR1ReasoningParser() : ReasoningParser(without_open_tag()) {}
DeepSeekR1ReasoningIncrementalParser::DeepSeekR1ReasoningIncrementalParser()
    : ReasoningIncrementalParser(without_open_tag()) {}

ToolCallParser::ToolCallParser(const std::string& family, const ToolCallOptions& options)
    : MarkedTextParser(std::make_unique<Impl>(Impl{settings_of(family, options)})) {}
ToolCallIncrementalParser::ToolCallIncrementalParser(const std::string& family,
                                                     const ToolCallOptions& options)
    : MarkedTextIncrementalParser(std::make_unique<Impl>(settings_of(family, options))) {}

std::vector<ParserFamily> parser_families() {
    std::vector<ParserFamily> all;
    for (const MessageFormat& format : message_formats())
        all.push_back({format.name, format.models, format.needs_special_tokens});
    return all;
}

std::optional<std::string> detect_parser(const std::string& chat_template) {
    const auto has = [&](const std::string& sign) {
        return chat_template.find(sign) != std::string::npos;
    };
    for (const MessageFormat& format : message_formats())
        for (const std::vector<std::string>& signs : format.template_signs)
            if (std::all_of(signs.begin(), signs.end(), has)) return format.name;
    return std::nullopt;
}

void Llama3JsonToolParser::parse(std::string& message_json) {
    json message = parsed_message(message_json);
    const std::string content = content_of(message);
    json calls = json::array();
    for (size_t i = content.find('{'); i != std::string::npos; i = content.find('{', i)) {
        const size_t length = call_length(std::string_view(content).substr(i));
        json call = length > 0 ? parse_ordered_json(content.substr(i, length), "a call") : json();
        if (call.is_object()) calls.push_back(std::move(call));
        i += std::max<size_t>(length, 1);
    }
    if (!calls.empty()) message["tool_calls"] = std::move(calls);
    message_json = json_text(message);
}

void Llama3PythonicToolParser::parse(std::string& message_json) {
    json message = parsed_message(message_json), found = json::object(), calls = json::array();
    put_events(ParserSettings{find_message_format("llama3_pythonic")}.parse(content_of(message)),
               found);
    for (const json& call : found["tool_calls"]) {
        if (call.contains("complete")) continue;
        const json& function = call["function"];
        json arguments = parse_ordered_json(function["arguments"], "a call");
        if (arguments.is_object())
            calls.push_back({{"arguments", std::move(arguments)}, {"name", function["name"]}});
    }
    if (!calls.empty()) message["tool_calls"] = std::move(calls);
    message_json = json_text(message);
}

struct TextParserStreamer::Impl {
    Parsers parsers;
    json message;
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
    json delta = parsed_message(delta_json);
    delta["content"] = content;
    merge(delta, m_parse->message);
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
