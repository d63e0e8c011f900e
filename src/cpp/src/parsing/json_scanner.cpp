#include "parsing/json_scanner.hpp"

#include "model/json_file.hpp"

namespace pagewheel {
namespace {

bool is_hex(char byte) {
    return is_digit(byte) || (byte >= 'a' && byte <= 'f') || (byte >= 'A' && byte <= 'F');
}

}  // namespace

ReadStep JsonScanner::take(char byte) {
    m_mark = Mark::NONE;
    switch (m_state) {
        case State::STRING:
        case State::ESCAPE:
        case State::HEX:
            return take_string(byte);
        case State::WORD:
            if (byte != m_word.front()) return ReadStep::REFUSED;
            m_word.remove_prefix(1);
            return m_word.empty() ? go(State::AFTER) : ReadStep::MORE;
        case State::NUMBER: {
            const char part = number_part(m_number_part, byte);
            if (part == 0)
                return may_end_number(m_number_part) ? take_after(byte) : ReadStep::REFUSED;
            m_number_part = part;
            return ReadStep::MORE;
        }
        case State::AFTER:
            return take_after(byte);
        case State::VALUE_OR_END:
            if (byte == ']') return close();
            [[fallthrough]];
        case State::VALUE:
            return is_space(byte) ? ReadStep::MORE : begin_value(byte);
        case State::KEY_OR_END:
            if (byte == '}') return close();
            [[fallthrough]];
        case State::KEY:
            if (is_space(byte)) return ReadStep::MORE;
            return byte == '"' ? begin_string(true) : ReadStep::REFUSED;
        case State::COLON:
            if (is_space(byte)) return ReadStep::MORE;
            return byte == ':' ? go(State::VALUE) : ReadStep::REFUSED;
    }
    return ReadStep::REFUSED;
}

ReadStep JsonScanner::begin_value(char byte) {
    if (byte == '"') return begin_string(false);
    m_mark = Mark::BEGINS_VALUE;
    if (byte == '{' || byte == '[') {
        if (m_containers.size() >= size_t(max_json_levels)) return ReadStep::REFUSED;
        m_containers += byte;
        return go(byte == '{' ? State::KEY_OR_END : State::VALUE_OR_END);
    }
    if (m_containers.empty()) return ReadStep::REFUSED;  // nothing would say where it ends
    for (const std::string_view word : {"true", "false", "null"}) {
        if (byte != word.front()) continue;
        m_word = word.substr(1);
        return go(State::WORD);
    }
    m_number_part = number_part(' ', byte);
    return m_number_part == 0 ? ReadStep::REFUSED : go(State::NUMBER);
}

ReadStep JsonScanner::take_string(char byte) {
    if (m_state == State::HEX) {
        if (!is_hex(byte)) return ReadStep::REFUSED;
        return --m_num_hex == 0 ? go(State::STRING) : ReadStep::MORE;
    }
    if (m_state == State::ESCAPE) {
        m_num_hex = 4;
        if (byte == 'u') return go(State::HEX);
        const bool is_known = std::string_view("\"\\/bfnrt").find(byte) != std::string_view::npos;
        return is_known ? go(State::STRING) : ReadStep::REFUSED;
    }
    if (byte == '\\') return go(State::ESCAPE);
    if (byte != '"') return ReadStep::MORE;
    m_mark = m_is_key ? Mark::ENDS_KEY : Mark::ENDS_VALUE;
    m_state = m_is_key ? State::COLON : State::AFTER;
    return m_containers.empty() ? ReadStep::DONE : ReadStep::MORE;
}

ReadStep JsonScanner::take_after(char byte) {
    m_state = State::AFTER;
    if (is_space(byte)) return ReadStep::MORE;
    const bool in_object = m_containers.back() == '{';
    if (byte == ',') return go(in_object ? State::KEY : State::VALUE);
    return byte == (in_object ? '}' : ']') ? close() : ReadStep::REFUSED;
}

ReadStep JsonScanner::begin_string(bool is_key) {
    m_is_key = is_key;
    m_mark = is_key ? Mark::BEGINS_KEY : Mark::BEGINS_VALUE;
    return go(State::STRING);
}

ReadStep JsonScanner::close() {
    m_containers.pop_back();
    m_mark = Mark::ENDS_VALUE;
    m_state = State::AFTER;
    return m_containers.empty() ? ReadStep::DONE : ReadStep::MORE;
}

ReadStep JsonScanner::go(State state) {
    m_state = state;
    return ReadStep::MORE;
}

char number_part(char part, char byte) {
    struct Rule {
        std::string_view behind, bytes;
        char part;
    };
    static constexpr std::string_view digits = "0123456789";
    static constexpr Rule rules[] = {{" ", "-", '-'},    {" -", "0", '0'}, {" -", "123456789", 'i'},
                                     {"i", digits, 'i'}, {"0i", ".", '.'}, {".f", digits, 'f'},
                                     {"0if", "eE", 'e'}, {"e", "+-", 's'}, {"esx", digits, 'x'}};
    for (const Rule& rule : rules)
        if (rule.behind.find(part) != std::string_view::npos &&
            rule.bytes.find(byte) != std::string_view::npos)
            return rule.part;
    return 0;
}

bool may_end_number(char part) {
    return std::string_view("0ifx").find(part) != std::string_view::npos;
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
