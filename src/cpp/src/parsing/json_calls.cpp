#include "parsing/json_calls.hpp"

#include <utility>

#include "model/json_file.hpp"

namespace pagewheel {
namespace {

using Mark = JsonScanner::Mark;

/// The text of a JSON string; empty where it is none.
std::string unquoted(const std::string& json) {
    const nlohmann::json value = parse_json(json, "a tool call");
    return value.is_string() ? value.get<std::string>() : "";
}

}  // namespace

CallReader::Step JsonCallReader::take(char byte, Events& out) {
    const size_t depth = m_scanner.depth();
    const bool in_string = m_scanner.in_string();
    const JsonScanner::Step step = m_scanner.take(byte);
    const Mark mark = step == JsonScanner::Step::BAD ? Mark::NONE : m_scanner.mark();
    const bool begins = mark == Mark::BEGINS_KEY || mark == Mark::BEGINS_VALUE;
    bool is_good = step != JsonScanner::Step::BAD;
    if (is_good && begins && depth == m_base) is_good = begin_part(byte, out);
    if (is_good) append(byte, in_string, out);
    const bool ends = mark == Mark::ENDS_KEY || mark == Mark::ENDS_VALUE;
    if (is_good && ends && m_scanner.depth() == m_base) {
        is_good = mark == Mark::ENDS_VALUE || end_key();
        end_part();
    }
    if (is_good && ends && m_scanner.depth() < m_base) {
        --m_base;
        is_good = m_base > 0 || end_object(out);
    }
    if (is_good) return step == JsonScanner::Step::DONE ? Step::DONE : Step::MORE;
    cut(out);
    return Step::REFUSED;
}

bool JsonCallReader::begin_part(char byte, Events& out) {
    if (m_scanner.mark() == Mark::BEGINS_KEY) {
        m_part = Part::KEY;
        return true;
    }
    m_part = m_next;
    switch (m_part) {
        case Part::NAME:
            if (byte == '{' && m_next_may_be_object) {
                ++m_base;
                m_part = Part::NONE;
                return true;
            }
            return byte == '"' && m_name.empty();
        case Part::ARGUMENTS:
            if (m_has_arguments) return false;
            if (byte == 'n') {  // null
                m_part = Part::OTHER;
                return true;
            }
            m_has_arguments = byte == '{';
            if (m_has_arguments && !m_name.empty()) begin_call(out);
            return m_has_arguments;
        case Part::ID:
            if (byte != '"') m_part = Part::OTHER;
            return true;
        case Part::NONE:
        case Part::KEY:
        case Part::OTHER:
            return true;
    }
    return false;
}

bool JsonCallReader::end_key() {
    const std::string key = unquoted(std::exchange(m_text, {}));
    m_next_may_be_object = key == "function" && m_base == 1;
    if (key == "name" || key == "function")
        m_next = Part::NAME;
    else if (key == "arguments" || key == "parameters")
        m_next = Part::ARGUMENTS;
    else if (key == "id")
        m_next = Part::ID;
    else
        m_next = Part::OTHER;
    return !m_is_strict || m_has_begun || m_next != Part::OTHER || key == "type";
}

void JsonCallReader::end_part() {
    if (m_part == Part::NAME) m_name = unquoted(std::exchange(m_text, {}));
    if (m_part == Part::ID) m_id = unquoted(std::exchange(m_text, {}));
    if (m_part == Part::ARGUMENTS) m_arguments_are_whole = true;
    m_part = Part::NONE;
}

/// The outermost one.
bool JsonCallReader::end_object(Events& out) {
    m_base = 0;
    if (m_name.empty() || (m_is_strict && !m_has_arguments)) return false;
    if (!m_has_begun) begin_call(out);
    if (!m_has_arguments) out.arguments("{}");
    out.end_call(true, m_has_told_id ? "" : m_id);
    m_has_begun = false;
    return true;
}

void JsonCallReader::append(char byte, bool in_string, Events& out) {
    switch (m_part) {
        case Part::KEY:
        case Part::NAME:
        case Part::ID:
            m_text += byte;
            return;
        case Part::ARGUMENTS: {
            std::string piece;
            if (in_string)
                append_string_byte(piece, byte);
            else
                piece = byte;
            if (m_has_begun)
                out.arguments(piece);
            else
                m_early += piece;
            return;
        }
        case Part::NONE:
        case Part::OTHER:
            return;
    }
}

void JsonCallReader::begin_call(Events& out) {
    out.begin_call(m_name, m_id);
    out.arguments(std::exchange(m_early, {}));
    m_has_begun = true;
    m_has_told_id = !m_id.empty();
}

void JsonCallReader::cut(Events& out) {
    if (m_has_begun) out.end_call(m_arguments_are_whole, m_has_told_id ? "" : m_id);
    m_has_begun = false;
}

CallReader::Step JsonCallsReader::take(char byte, Events& out) {
    switch (m_place) {
        case Place::BEFORE:
            return take_before(byte, out);
        case Place::CALL: {
            const Step step = m_call->take(byte, out);
            return step == Step::DONE ? after_call() : step;
        }
        case Place::AFTER_IN_LIST:
            if (byte == ',') m_place = Place::BEFORE;
            if (byte == ']') {
                m_in_list = false;
                return after_call() == Step::DONE ? Step::DONE : Step::FRAME;
            }
            return is_space(byte) || byte == ',' ? Step::MORE : Step::REFUSED;
        case Place::AFTER:
            return take_after(byte, out);
    }
    return Step::REFUSED;
}

CallReader::Step JsonCallsReader::take_before(char byte, Events& out) {
    if (is_space(byte)) return Step::MORE;
    if (byte == '[' && !m_in_list) {
        m_in_list = true;
        return Step::MORE;
    }
    if (byte != '{') return Step::REFUSED;
    m_call = std::make_unique<JsonCallReader>(m_format.is_strict);
    m_place = Place::CALL;
    return m_call->take(byte, out);
}

CallReader::Step JsonCallsReader::after_call() {
    m_call.reset();
    m_place = m_in_list ? Place::AFTER_IN_LIST : Place::AFTER;
    const bool is_over = !m_in_list && m_format.closers.empty() && !m_format.may_repeat;
    return is_over ? Step::DONE : Step::MORE;
}

CallReader::Step JsonCallsReader::take_after(char byte, Events& out) {
    if (!m_closer.is_within()) {
        if (is_space(byte)) return Step::MORE;
        if (m_format.may_repeat) {
            if (m_format.separators.find(byte) != std::string::npos) {
                m_place = Place::BEFORE;
                return Step::MORE;
            }
            if (byte == '{' || byte == '[') return take_before(byte, out);
        }
    }
    return close_section(m_closer, byte);
}

void JsonCallsReader::cut(Events& out) {
    if (m_call) m_call->cut(out);
}

}  // namespace pagewheel
