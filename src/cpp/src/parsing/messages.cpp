#include "parsing/messages.hpp"

#include <algorithm>
#include <utility>

#include "model/json_file.hpp"
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

void put_reasoning(const std::string& text, json& message) {
    append(message["reasoning_content"], replace_invalid_utf8(text));
}

void put_id(const std::string& id, json& call) {
    if (!id.empty()) call["id"] = replace_invalid_utf8(id);
}

void merge(const json& part, json& whole);

void merge_objects(const json& part, json& whole, const char* without = "") {
    for (const auto& [key, value] : part.items()) {
        if (key == without) continue;
        const auto found = whole.find(key);
        if (found == whole.end())
            merge(value, whole[key]);
        else
            merge(value, *found);
    }
}

/// The element that a piece is of, or a new one.
json& element_of(const json& piece, json& list) {
    const auto index = piece.find("index");
    const bool is_there = index->get<size_t>() < list.size();
    if (is_there) return list[index->get<size_t>()];
    list.push_back(json::object());
    return list.back();
}

bool has_index(const json& value) {
    return value.is_object() && value.contains("index") && value["index"].is_number_unsigned();
}

void merge_lists(const json& part, json& whole) {
    for (const json& value : part) {
        if (!has_index(value)) {
            whole.push_back(value);
            continue;
        }
        json& element = element_of(value, whole);
        if (!element.is_object()) element = json::object();
        merge_objects(value, element, "index");
    }
}

void merge(const json& part, json& whole) {
    const bool is_new = whole.is_null();
    if (part.is_string() && whole.is_string()) {
        append(whole, part.get_ref<const json::string_t&>());
    } else if (part.is_object() && whole.is_object()) {
        merge_objects(part, whole);
    } else if (part.is_array() && (whole.is_array() || is_new)) {
        if (is_new) whole = json::array();
        merge_lists(part, whole);
    } else {
        whole = part;
    }
}

}  // namespace

json parsed_message(const std::string& text) {
    json message = parse_ordered_json(text, "a message");
    check_argument(message.is_object(), "a message is ", text, "; allowed: a JSON object");
    return message;
}

std::string content_of(const json& message) {
    const auto content = message.find("content");
    check_argument(content != message.end() && content->is_string(), "a message has content ",
                   content == message.end() ? "" : json_text(*content), "; allowed: a text");
    return *content;
}

void put_events(const std::vector<ParseEvent>& events, json& message) {
    DeltaWriter writer;
    json delta = json::object();
    const std::string content = writer.put(events, delta);
    message["content"] = replace_invalid_utf8(content);
    const auto reasoning = delta.find("reasoning_content");
    if (reasoning != delta.end()) message["reasoning_content"] = *reasoning;
    const auto calls = delta.find("tool_calls");
    if (calls == delta.end()) return;
    json& all = message["tool_calls"];
    if (!all.is_array()) all = json::array();
    for (json& call : *calls) {
        call.erase("index");
        all.push_back(std::move(call));
    }
}

json& DeltaWriter::call(json& delta) const {
    json& calls = delta["tool_calls"];
    if (!calls.is_array()) calls = json::array();
    const size_t index = m_num_calls - 1;
    const bool is_there =
        !calls.empty() && has_index(calls.back()) && calls.back()["index"] == index;
    if (!is_there) calls.push_back({{"index", index}});
    return calls.back();
}

std::string DeltaWriter::put(const std::vector<ParseEvent>& events, json& delta) {
    std::string content;
    const auto has = [&](auto... kinds) {
        return std::any_of(events.begin(), events.end(),
                           [&](const ParseEvent& event) { return ((event.kind == kinds) || ...); });
    };
    // If the delta is that of an earlier piece, what it held was given out then.
    if (has(ParseEvent::Kind::REASONING)) delta.erase("reasoning_content");
    if (has(ParseEvent::Kind::CALL_BEGIN, ParseEvent::Kind::ARGUMENTS, ParseEvent::Kind::CALL_END))
        delta.erase("tool_calls");
    for (const ParseEvent& event : events) {
        switch (event.kind) {
            case ParseEvent::Kind::CONTENT:
                content += event.text;
                break;
            case ParseEvent::Kind::REASONING:
                put_reasoning(event.text, delta);
                break;
            case ParseEvent::Kind::CALL_BEGIN: {
                ++m_num_calls;
                json& begun = call(delta);
                put_id(event.id, begun);
                begun["type"] = "function";
                begun["function"] = {{"name", replace_invalid_utf8(event.text)}, {"arguments", ""}};
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

void merge_delta(const json& delta, json& message) {
    merge_objects(delta, message);
}

}  // namespace pagewheel
