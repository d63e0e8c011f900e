#include "parsing/json_scanner.hpp"

#include "model/json_file.hpp"
#include "parsing/bytes.hpp"

namespace pagewheel {
namespace {

bool is_hex(char byte) {
    return is_digit(byte) || (byte >= 'a' && byte <= 'f') || (byte >= 'A' && byte <= 'F');
}

}  // namespace

JsonScanner::Step JsonScanner::take(char byte) {
    m_mark = Mark::NONE;
    switch (m_state) {
        case State::VALUE_OR_END:
            if (byte == ']') return close();
            [[fallthrough]];
        case State::VALUE:
            return is_space(byte) ? Step::MORE : begin_value(byte);
        case State::KEY_OR_END:
            if (byte == '}') return close();
            [[fallthrough]];
        case State::KEY:
            if (is_space(byte)) return Step::MORE;
            return byte == '"' ? begin_string(true) : bad();
        case State::COLON:
            if (is_space(byte)) return Step::MORE;
            return byte == ':' ? go(State::VALUE) : bad();
        case State::AFTER:
            return take_after(byte);
        case State::STRING:
        case State::ESCAPE:
        case State::HEX:
            return take_string(byte);
        case State::WORD:
            if (byte != m_word.front()) return bad();
            m_word.remove_prefix(1);
            return m_word.empty() ? go(State::AFTER) : Step::MORE;
        case State::MINUS:
        case State::ZERO:
        case State::INTEGER:
        case State::POINT:
        case State::FRACTION:
        case State::EXPONENT:
        case State::EXPONENT_SIGN:
        case State::EXPONENT_DIGITS:
            return take_number(byte);
    }
    return bad();
}

JsonScanner::Step JsonScanner::begin_value(char byte) {
    if (byte == '"') return begin_string(false);
    const bool is_container = byte == '{' || byte == '[';
    if (is_container) return open(byte);
    if (m_containers.empty()) return bad();  // nothing would say where it ends
    m_mark = Mark::BEGINS_VALUE;
    for (const std::string_view word : {"true", "false", "null"}) {
        if (byte != word.front()) continue;
        m_word = word.substr(1);
        return go(State::WORD);
    }
    if (byte == '-') return go(State::MINUS);
    if (byte == '0') return go(State::ZERO);
    return is_digit(byte) ? go(State::INTEGER) : bad();
}

JsonScanner::Step JsonScanner::take_string(char byte) {
    if (m_state == State::HEX) {
        if (!is_hex(byte)) return bad();
        return --m_num_hex == 0 ? go(State::STRING) : Step::MORE;
    }
    if (m_state == State::ESCAPE) {
        m_num_hex = 4;
        if (byte == 'u') return go(State::HEX);
        const bool is_known = std::string_view("\"\\/bfnrt").find(byte) != std::string_view::npos;
        return is_known ? go(State::STRING) : bad();
    }
    if (byte == '\\') return go(State::ESCAPE);
    if (byte != '"') return Step::MORE;
    m_mark = m_is_key ? Mark::ENDS_KEY : Mark::ENDS_VALUE;
    m_state = m_is_key ? State::COLON : State::AFTER;
    return m_containers.empty() ? Step::DONE : Step::MORE;
}

JsonScanner::Step JsonScanner::take_number(char byte) {
    const bool has_point = m_state == State::ZERO || m_state == State::INTEGER;
    const bool may_end =
        has_point || m_state == State::FRACTION || m_state == State::EXPONENT_DIGITS;
    if (is_digit(byte)) {
        if (m_state == State::ZERO) return bad();
        if (m_state == State::MINUS) return go(byte == '0' ? State::ZERO : State::INTEGER);
        if (m_state == State::POINT) return go(State::FRACTION);
        const bool begins_exponent = m_state == State::EXPONENT || m_state == State::EXPONENT_SIGN;
        return begins_exponent ? go(State::EXPONENT_DIGITS) : Step::MORE;
    }
    if (byte == '.' && has_point) return go(State::POINT);
    if ((byte == 'e' || byte == 'E') && may_end && m_state != State::EXPONENT_DIGITS)
        return go(State::EXPONENT);
    if ((byte == '+' || byte == '-') && m_state == State::EXPONENT) return go(State::EXPONENT_SIGN);
    return may_end ? take_after(byte) : bad();
}

JsonScanner::Step JsonScanner::take_after(char byte) {
    m_state = State::AFTER;
    if (is_space(byte)) return Step::MORE;
    const bool in_object = m_containers.back() == '{';
    if (byte == ',') return go(in_object ? State::KEY : State::VALUE);
    return byte == (in_object ? '}' : ']') ? close() : bad();
}

JsonScanner::Step JsonScanner::begin_string(bool is_key) {
    m_is_key = is_key;
    m_mark = is_key ? Mark::BEGINS_KEY : Mark::BEGINS_VALUE;
    return go(State::STRING);
}

JsonScanner::Step JsonScanner::open(char bracket) {
    if (m_containers.size() >= size_t(max_json_levels)) return bad();
    m_containers += bracket;
    m_mark = Mark::BEGINS_VALUE;
    return go(bracket == '{' ? State::KEY_OR_END : State::VALUE_OR_END);
}

JsonScanner::Step JsonScanner::close() {
    m_containers.pop_back();
    m_mark = Mark::ENDS_VALUE;
    m_state = State::AFTER;
    return m_containers.empty() ? Step::DONE : Step::MORE;
}

JsonScanner::Step JsonScanner::go(State state) {
    m_state = state;
    return Step::MORE;
}

void append_string_byte(std::string& json, char byte) {
    static const char* const digits = "0123456789abcdef";
    const auto code = static_cast<unsigned char>(byte);
    if (code >= 0x20)
        json += byte;
    else if (byte == '\n')
        json += "\\n";
    else
        json.append("\\u00").append(1, digits[code >> 4]).append(1, digits[code & 15]);
}

void append_text_byte(std::string& json, char byte) {
    if (byte == '"' || byte == '\\') json += '\\';
    append_string_byte(json, byte);
}

}  // namespace pagewheel
