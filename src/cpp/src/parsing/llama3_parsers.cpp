// openvino_genai's parsers of Llama 3: calls as the model wrote them, of a whole text.
#include <algorithm>
#include <string_view>
#include <utility>

#include "model/json_file.hpp"
#include "pagewheel/parsers.hpp"
#include "parsing/json_calls.hpp"
#include "parsing/messages.hpp"
#include "parsing/python_calls.hpp"
#include "parsing/stream_parser.hpp"

namespace pagewheel {
namespace {

using json = nlohmann::ordered_json;

/// The length of the call that `text` begins with; 0 if that is none.
size_t call_length(std::string_view text) {
    JsonCallReader reader(/*is_strict=*/true);
    Events events;
    for (size_t i = 0; i < text.size(); ++i) {
        const CallReader::Step step = reader.take(text[i], events);
        if (step == CallReader::Step::DONE) return i + 1;
        if (step != CallReader::Step::MORE) return 0;
        events.take_all();
    }
    return 0;
}

void put_calls(json calls, json& message) {
    if (!calls.empty()) message["tool_calls"] = std::move(calls);
}

}  // namespace

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
    put_calls(std::move(calls), message);
    message_json = json_text(message);
}

void Llama3PythonicToolParser::parse(std::string& message_json) {
    json message = parsed_message(message_json);
    Events events;
    StreamParser parser(find_family("llama3_pythonic"));
    parser.feed(content_of(message), events);
    parser.finish(events);
    json calls = json::array();
    std::string name, arguments;
    for (const ParseEvent& event : events.all()) {
        if (event.kind == ParseEvent::Kind::CALL_BEGIN) {
            name = event.text;
            arguments.clear();
        } else if (event.kind == ParseEvent::Kind::ARGUMENTS) {
            arguments += event.text;
        } else if (event.kind == ParseEvent::Kind::CALL_END && event.complete) {
            json parsed = parse_ordered_json(arguments, "a call");
            if (parsed.is_object())
                calls.push_back({{"arguments", std::move(parsed)}, {"name", name}});
        }
    }
    put_calls(std::move(calls), message);
    message_json = json_text(message);
}

}  // namespace pagewheel
