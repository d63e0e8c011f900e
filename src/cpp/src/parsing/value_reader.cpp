#include "parsing/argument_reader.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/code_point.hpp"
#include "model/json_file.hpp"

namespace pagewheel {
namespace {

constexpr size_t max_word = 4096;  // bytes of a number, or of a key without quotes

bool is_in(std::string_view bytes, char byte) {
    return bytes.find(byte) != std::string_view::npos;
}

/// Appends a byte of JSON within a string, escaped where it is a control character.
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

/// The part of a JSON number that `byte` is where it stands behind `part`; 0: it is none of it.
/// Parts: ' ' nothing, '-' the sign, '0' a single zero, 'i' other whole digits, '.', 'f' digits
/// behind that, 'e', 's' the exponent's sign, 'x' its digits.
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
        if (is_in(rule.behind, part) && is_in(rule.bytes, byte)) return rule.part;
    return 0;
}

bool may_end_number(char part) {
    return is_in("0ifx", part);
}

/// JSON's number for Python's, which may be `1.`, `.5`, `+1`, `1_000` or `007.5`; empty for none.
std::string json_number(std::string text) {
    for (size_t i = 1; i + 1 < text.size(); ++i)
        if (text[i] == '_' && is_digit(text[i - 1]) && is_digit(text[i + 1])) text.erase(i, 1);
    const std::string sign = text[0] == '-' ? "-" : "";
    if (text[0] == '-' || text[0] == '+') text.erase(0, 1);
    const auto is_digit_at = [&](size_t i) { return i < text.size() && is_digit(text[i]); };
    if (!is_digit_at(text[0] == '.' ? 1 : 0)) return {};
    text.erase(0, std::min(text.find_first_not_of('0'), text.size()));
    if (!is_digit_at(0)) text.insert(0, "0");
    const size_t point = text.find('.');
    if (point != std::string::npos && !is_digit_at(point + 1)) text.insert(point + 1, "0");
    char part = ' ';
    for (const char byte : text) part = number_part(part, byte);
    return may_end_number(part) ? sign + text : "";
}

}  // namespace

ValueReader::ValueReader(const ArgumentFormat& format)
    : m_kind(format.kind),
      m_quote(format.quote),
      m_quotes({m_quote}),
      m_state(m_kind == Kind::JSON ? State::VALUE : State::KEY_OR_END),
      m_closings(m_kind == Kind::JSON     ? ""
                 : m_kind == Kind::PYTHON ? ")"
                                          : "}") {}

ReadStep ValueReader::take(char byte, std::string& json) {
    m_mark = Mark::NONE;
    if (m_kind != Kind::JSON) {
        if (!std::exchange(m_has_begun, true)) json += '{';
        return take_any(byte, json);
    }
    const bool is_in_string = m_state == State::STRING;
    std::string rewritten;
    const ReadStep step = take_any(byte, rewritten);
    if (step != ReadStep::REFUSED && is_in_string)
        append_string_byte(json, byte);
    else if (step != ReadStep::REFUSED)
        json += byte;
    return step;
}

ReadStep ValueReader::take_any(char byte, std::string& json) {
    switch (m_state) {
        case State::KEY_OR_END:
        case State::KEY:
        case State::KEY_NAME:
        case State::ASSIGNMENT:
            return take_key(byte, json);
        case State::VALUE:
        case State::VALUE_OR_END:
            return take_value(byte, json);
        case State::AFTER:
            return take_after(byte, json);
        case State::WORD:
            return m_kind == Kind::JSON ? take_json_word(byte, json) : take_word(byte, json);
        case State::QUOTE:
            return take_quoted(byte, json);
        case State::STRING:
        case State::ESCAPE:
        case State::HEX:
        case State::OCTAL:
            return take_string(byte, json);
    }
    return ReadStep::REFUSED;
}

ReadStep ValueReader::take_key(char byte, std::string& json) {
    if (m_state == State::KEY_NAME) {
        if (is_name_byte(byte) && m_word.size() < max_word) {
            m_word += byte;
            return ReadStep::MORE;
        }
        json.append("\"").append(std::exchange(m_word, {})).append("\"");
        m_state = State::ASSIGNMENT;
    }
    if (is_space(byte)) return ReadStep::MORE;
    if (m_state == State::ASSIGNMENT) {
        if (byte != (is_outermost() ? '=' : ':')) return ReadStep::REFUSED;
        json += ": ";
        return go(State::VALUE);
    }
    // A comma may be the last before a bracket, as Python has it.
    const bool may_end = m_state == State::KEY_OR_END || m_kind != Kind::JSON;
    if (may_end && byte == m_closings.back()) return close(json);
    const bool has_quotes = m_kind != Kind::QUOTED && !is_outermost();
    const bool begins_key = has_quotes ? is_in(m_kind == Kind::JSON ? "\"" : "\"'", byte)
                                       : is_name_byte(byte) && !(is_outermost() && is_digit(byte));
    if (!begins_key) return ReadStep::REFUSED;
    if (m_state == State::KEY) json += ", ";
    if (has_quotes) return begin_string(byte, true, json);
    m_word = byte;
    return go(State::KEY_NAME);
}

ReadStep ValueReader::take_value(char byte, std::string& json) {
    if (is_space(byte)) return ReadStep::MORE;
    if (m_state == State::VALUE_OR_END && byte == m_closings.back()) return close(json);
    if (std::exchange(m_needs_comma, false)) json += ", ";
    if (byte == '[') return open(']', json);
    if (byte == '{') return open('}', json);
    if (byte == '(' && m_kind == Kind::PYTHON) return open(')', json);
    const char* quotes = m_kind == Kind::QUOTED ? "" : m_kind == Kind::JSON ? "\"" : "\"'";
    if (is_in(quotes, byte)) return begin_string(byte, false, json);
    if (m_kind == Kind::QUOTED && byte == m_quote.front()) {
        m_state = State::QUOTE;
        return take_quoted(byte, json);
    }
    if (m_kind == Kind::JSON) return begin_json_word(byte);
    m_word.clear();
    m_state = State::WORD;
    return take_word(byte, json);
}

/// Reads the quote that begins a text, or the text up to the one that ends it.
ReadStep ValueReader::take_quoted(char byte, std::string& json) {
    std::string passed;
    const bool is_quote = m_quotes.take(byte, passed) != MarkerFinder::npos;
    if (m_state == State::QUOTE) {
        if (!passed.empty()) return ReadStep::REFUSED;
        return is_quote ? begin_string(0, false, json) : ReadStep::MORE;
    }
    for (const char each : passed) append_text_byte(json, each);
    return is_quote ? end_string(json) : ReadStep::MORE;
}

ReadStep ValueReader::take_word(char byte, std::string& json) {
    if (is_name_byte(byte) || is_in(".+-", byte)) {
        m_word += byte;
        return m_word.size() <= max_word ? ReadStep::MORE : ReadStep::REFUSED;
    }
    static const std::map<std::string, std::string> words{{"True", "true"},   {"False", "false"},
                                                          {"None", "null"},   {"true", "true"},
                                                          {"false", "false"}, {"null", "null"}};
    const std::string word = std::exchange(m_word, {});
    const auto known = words.find(word);
    const std::string value = known != words.end() ? known->second : json_number(word);
    if (value.empty()) return ReadStep::REFUSED;
    json += value;
    return take_after(byte, json);
}

ReadStep ValueReader::begin_json_word(char byte) {
    if (m_closings.empty()) return ReadStep::REFUSED;  // nothing would say where it ends
    m_mark = Mark::BEGINS_VALUE;
    for (const std::string_view word : {"true", "false", "null"}) {
        if (byte != word.front()) continue;
        m_missing = word.substr(1);
        return go(State::WORD);
    }
    m_number_part = number_part(' ', byte);
    return m_number_part == 0 ? ReadStep::REFUSED : go(State::WORD);
}

/// JSON goes on at once, so each byte is checked.
ReadStep ValueReader::take_json_word(char byte, std::string& json) {
    if (!m_missing.empty()) {
        if (byte != m_missing.front()) return ReadStep::REFUSED;
        m_missing.remove_prefix(1);
        return m_missing.empty() ? go(State::AFTER) : ReadStep::MORE;
    }
    const char part = number_part(m_number_part, byte);
    if (part == 0)
        return may_end_number(m_number_part) ? take_after(byte, json) : ReadStep::REFUSED;
    m_number_part = part;
    return ReadStep::MORE;
}

ReadStep ValueReader::take_after(char byte, std::string& json) {
    m_state = State::AFTER;
    if (is_space(byte)) return ReadStep::MORE;
    if (byte == m_closings.back()) return close(json);
    if (byte != ',') return ReadStep::REFUSED;
    if (is_object()) return go(State::KEY);
    m_needs_comma = true;
    return go(m_kind == Kind::JSON ? State::VALUE : State::VALUE_OR_END);
}

ReadStep ValueReader::begin_string(char quote, bool is_key, std::string& json) {
    m_string_quote = quote;
    m_is_key = is_key;
    m_mark = is_key ? Mark::BEGINS_KEY : Mark::BEGINS_VALUE;
    json += '"';
    return go(State::STRING);
}

ReadStep ValueReader::end_string(std::string& json) {
    json += '"';
    m_mark = m_is_key ? Mark::ENDS_KEY : Mark::ENDS_VALUE;
    m_state = m_is_key ? State::ASSIGNMENT : State::AFTER;
    return m_closings.empty() ? ReadStep::DONE : ReadStep::MORE;
}

ReadStep ValueReader::take_string(char byte, std::string& json) {
    if (m_state == State::ESCAPE) return take_escape(byte, json);
    if (m_state != State::STRING) return take_digit(byte, json);
    if (m_kind == Kind::QUOTED) return take_quoted(byte, json);
    if (byte == m_string_quote) return end_string(json);
    if (byte == '\\') return go(State::ESCAPE);
    append_text_byte(json, byte);
    return ReadStep::MORE;
}

ReadStep ValueReader::take_escape(char byte, std::string& json) {
    static const std::string letters = "abfnrtv", codes = "\a\b\f\n\r\t\v";
    if (m_kind == Kind::JSON && !is_in("\"\\/bfnrtu", byte)) return ReadStep::REFUSED;
    m_state = State::STRING;
    if (byte == 'x') return begin_code(State::HEX, 2);
    if (byte == 'u') return begin_code(State::HEX, 4);
    if (byte == 'U') return begin_code(State::HEX, 8);
    if (byte >= '0' && byte <= '7') {
        begin_code(State::OCTAL, 3);
        return take_digit(byte, json);
    }
    if (byte == 'N') return ReadStep::REFUSED;  // a character's name
    if (byte == '\n') return ReadStep::MORE;
    const size_t letter = letters.find(byte);
    if (letter != std::string::npos) {
        append_text_byte(json, codes[letter]);
        return ReadStep::MORE;
    }
    // An escape that Python does not know stays as it is.
    if (!is_in("\\'\"", byte)) append_text_byte(json, '\\');
    append_text_byte(json, byte);
    return ReadStep::MORE;
}

ReadStep ValueReader::begin_code(State state, int num_digits) {
    m_code = 0;
    m_num_digits = num_digits;
    return go(state);
}

ReadStep ValueReader::take_digit(char byte, std::string& json) {
    const bool is_octal = m_state == State::OCTAL;
    const std::string_view digits = is_octal ? "01234567" : "0123456789abcdef";
    const bool is_upper = byte >= 'A' && byte <= 'F';
    const size_t digit = digits.find(is_upper ? char(byte - 'A' + 'a') : byte);
    const bool is_digit_here = digit != std::string::npos && !(is_octal && is_upper);
    if (!is_digit_here && !is_octal) return ReadStep::REFUSED;
    if (is_digit_here) {
        m_code = m_code * uint32_t(digits.size()) + uint32_t(digit);
        if (--m_num_digits > 0) return ReadStep::MORE;
    }
    m_state = State::STRING;
    if (!append_code(json)) return ReadStep::REFUSED;
    return is_digit_here ? ReadStep::MORE : take_string(byte, json);
}

bool ValueReader::append_code(std::string& json) const {
    if (m_code > 0x10FFFF) return false;
    if (m_code >= 0xD800 && m_code <= 0xDFFF) {  // half of a pair, which JSON writes alike
        json += "\\u";
        for (int shift = 12; shift >= 0; shift -= 4)
            json += "0123456789abcdef"[(m_code >> shift) & 15];
    } else if (m_code < 0x80) {
        append_text_byte(json, char(m_code));
    } else {
        append_utf8(json, m_code);
    }
    return true;
}

ReadStep ValueReader::open(char closing, std::string& json) {
    if (m_closings.size() >= size_t(max_json_levels)) return ReadStep::REFUSED;
    m_mark = Mark::BEGINS_VALUE;
    m_closings += closing;
    json += closing == '}' ? '{' : '[';
    return go(closing == '}' ? State::KEY_OR_END : State::VALUE_OR_END);
}

ReadStep ValueReader::close(std::string& json) {
    json += is_object() ? '}' : ']';
    m_needs_comma = false;
    m_closings.pop_back();
    m_mark = Mark::ENDS_VALUE;
    m_state = State::AFTER;
    return m_closings.empty() ? ReadStep::DONE : ReadStep::MORE;
}

ReadStep ValueReader::go(State state) {
    m_state = state;
    return ReadStep::MORE;
}

void append_text_byte(std::string& json, char byte) {
    if (is_in("\"\\", byte)) json += '\\';
    append_string_byte(json, byte);
}

}  // namespace pagewheel
