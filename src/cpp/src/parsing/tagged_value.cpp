#include "parsing/tagged_value.hpp"

#include <utility>

#include "parsing/json_scanner.hpp"
#include "parsing/loose_values.hpp"

namespace pagewheel {
namespace {

constexpr size_t max_value = 1 << 16;  // longer ones are texts

bool may_begin_json(char byte) {
    return std::string_view("{[-0123456789tfnTFN \n\t\r").find(byte) != std::string_view::npos;
}

/// JSON of what is JSON, with control characters escaped; else empty.
std::string if_json(std::string_view value) {
    JsonScanner scanner;
    scanner.take('[');
    std::string json;
    for (const char byte : value) {
        const bool in_string = scanner.in_string();
        const bool is_outer = scanner.depth() == 1 && !in_string;
        if (is_outer && (byte == ',' || byte == ']')) return {};
        if (scanner.take(byte) == JsonScanner::Step::BAD) return {};
        if (in_string)
            append_string_byte(json, byte);
        else
            json += byte;
    }
    const bool is_blank = value.find_first_not_of(" \n\t\r") == std::string_view::npos;
    return !is_blank && scanner.take(']') == JsonScanner::Step::DONE ? json : "";
}

/// JSON of what Python would write; else empty.
std::string if_python(std::string_view value) {
    LooseValues values(')', '=');
    std::string json;
    const std::string prefix = "v=";
    for (const char byte : prefix) values.take(byte, json);
    const size_t begin = json.size();
    for (const char byte : value) {
        if (byte == ',' && values.is_between_keys()) return {};  // another key would begin
        if (values.take(byte, json) != LooseValues::Step::MORE) return {};
    }
    const bool is_whole = values.take(')', json) == LooseValues::Step::DONE;
    return is_whole ? json.substr(begin, json.size() - begin - 1) : "";
}

}  // namespace

TaggedValue::TaggedValue(Type type, std::string close, bool trims_lines)
    : m_type(type),
      m_close(std::move(close)),
      m_close_after_line(trims_lines ? "\n" + m_close : m_close),
      m_may_skip_line(trims_lines) {}

bool TaggedValue::take(char byte, std::string& json) {
    if (std::exchange(m_may_skip_line, false) && byte == '\n') return false;
    m_held += byte;
    const auto begins = [&](const std::string& close) {
        return close.compare(0, m_held.size(), m_held) == 0;
    };
    while (!begins(m_close) && !begins(m_close_after_line)) {
        append(m_held.front(), json);
        m_held.erase(0, 1);
    }
    if (m_held != m_close && m_held != m_close_after_line) return false;
    end(json);
    return true;
}

void TaggedValue::append(char byte, std::string& json) {
    if (!m_is_text) {
        const bool is_first = m_value.empty();
        const bool is_text = m_type == Type::TEXT || m_value.size() >= max_value ||
                             (m_type == Type::UNKNOWN && is_first && !may_begin_json(byte));
        if (is_text) begin_text(json);
    }
    if (m_is_text)
        append_text_byte(json, byte);
    else
        m_value += byte;
}

void TaggedValue::begin_text(std::string& json) {
    m_is_text = true;
    json += '"';
    for (const char early : std::exchange(m_value, {})) append_text_byte(json, early);
}

void TaggedValue::end(std::string& json) {
    if (!m_is_text) {
        const bool may_be_json = m_type != Type::TEXT && !m_value.empty();
        const std::string value = may_be_json ? json_of_value(m_value) : "";
        if (!value.empty()) {
            json += value;
            return;
        }
        begin_text(json);
    }
    json += '"';
}

std::string json_of_value(std::string_view value) {
    const std::string json = if_json(value);
    const bool may_be_python = value.front() == '[' || value.front() == '{' || value == "True" ||
                               value == "False" || value == "None";
    return json.empty() && may_be_python ? if_python(value) : json;
}

}  // namespace pagewheel
