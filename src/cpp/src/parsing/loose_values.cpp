#include "parsing/loose_values.hpp"

#include <algorithm>
#include <utility>

#include "model/json_file.hpp"
#include "parsing/bytes.hpp"
#include "parsing/json_scanner.hpp"

namespace pagewheel {
namespace {

constexpr size_t max_word = 4096;  // digits of a number

size_t skip_digits(const std::string& text, size_t i) {
    while (i < text.size() && is_digit(text[i])) ++i;
    return i;
}

/// JSON's number for Python's, which may be `1.`, `.5`, `+1`, `1_000` or `007.5`; empty for none.
std::string json_number(std::string text) {
    std::string sign, digits;
    for (size_t i = 0; i < text.size(); ++i) {
        const bool separates = text[i] == '_' && i > 0 && i + 1 < text.size() &&
                               is_digit(text[i - 1]) && is_digit(text[i + 1]);
        if (!separates) digits += text[i];
    }
    if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) {
        if (digits[0] == '-') sign = "-";
        digits.erase(0, 1);
    }
    const size_t end = skip_digits(digits, 0);
    std::string whole = digits.substr(0, end), fraction, exponent;
    size_t i = end;
    const bool has_point = i < digits.size() && digits[i] == '.';
    if (has_point) {
        const size_t begin = i + 1;
        i = skip_digits(digits, begin);
        fraction = digits.substr(begin, i - begin);
        if (whole.empty() && fraction.empty()) return {};
    } else if (whole.empty()) {
        return {};
    }
    if (i < digits.size() && (digits[i] == 'e' || digits[i] == 'E')) {
        size_t begin = i + 1;
        if (begin < digits.size() && (digits[begin] == '-' || digits[begin] == '+')) ++begin;
        const size_t last = skip_digits(digits, begin);
        if (last == begin) return {};
        exponent = digits.substr(i, last - i);
        i = last;
    }
    if (i != digits.size()) return {};
    const size_t zeros = std::min(whole.find_first_not_of('0'), whole.size());
    whole.erase(0, zeros);
    if (whole.empty()) whole = "0";
    if (has_point && fraction.empty()) fraction = "0";
    return sign + whole + (fraction.empty() ? "" : "." + fraction) + exponent;
}

void append_utf8(std::string& text, uint32_t code) {
    const auto tail = [&](int shift) { text += char(0x80 | ((code >> shift) & 0x3F)); };
    if (code < 0x80) {
        text += char(code);
    } else if (code < 0x800) {
        text += char(0xC0 | (code >> 6));
        tail(0);
    } else if (code < 0x10000) {
        text += char(0xE0 | (code >> 12));
        tail(6);
        tail(0);
    } else {
        text += char(0xF0 | (code >> 18));
        tail(12);
        tail(6);
        tail(0);
    }
}

}  // namespace

LooseValues::LooseValues(char closing, char assignment, std::string quote)
    : m_assignment(assignment),
      m_quote(std::move(quote)),
      m_quotes({m_quote}),
      m_closings(1, closing) {}

bool LooseValues::is_between_keys() const {
    const bool is_text = m_state == State::STRING || m_state == State::ESCAPE ||
                         m_state == State::HEX || m_state == State::OCTAL;
    return m_closings.size() == 1 && !is_text;
}

LooseValues::Step LooseValues::take(char byte, std::string& json) {
    if (!std::exchange(m_has_begun, true)) json += '{';
    switch (m_state) {
        case State::KEY_OR_END:
        case State::KEY:
        case State::KEY_NAME:
        case State::ASSIGNMENT:
            return take_key(byte, json);
        case State::VALUE:
        case State::VALUE_OR_END:
        case State::QUOTE:
            return take_value(byte, json);
        case State::AFTER:
            return take_after(byte, json);
        case State::WORD:
            return take_word(byte, json);
        case State::STRING:
        case State::ESCAPE:
        case State::HEX:
        case State::OCTAL:
            return take_string(byte, json);
    }
    return Step::BAD;
}

LooseValues::Step LooseValues::take_key(char byte, std::string& json) {
    const char assignment = m_closings.size() == 1 ? m_assignment : ':';
    if (m_state == State::KEY_NAME) {
        if (is_name_byte(byte) && m_word.size() < max_word) {
            m_word += byte;
            return Step::MORE;
        }
        json.append("\"").append(std::exchange(m_word, {})).append("\"");
        m_state = State::ASSIGNMENT;
    }
    if (is_space(byte)) return Step::MORE;
    if (m_state == State::ASSIGNMENT) {
        if (byte != assignment) return Step::BAD;
        json += ": ";
        return go(State::VALUE);
    }
    // A comma may be the last before a bracket, as Python has it.
    if (byte == m_closings.back()) return close(json);
    const bool is_python_dict = m_quote.empty() && m_closings.size() > 1;
    if (is_python_dict && (byte == '"' || byte == '\'')) {
        if (m_state == State::KEY) json += ", ";
        return begin_string(byte, true, json);
    }
    const bool begins_name = is_name_byte(byte) && !(m_quote.empty() && is_digit(byte));
    if (is_python_dict || !begins_name) return Step::BAD;
    if (m_state == State::KEY) json += ", ";
    m_word = byte;
    return go(State::KEY_NAME);
}

LooseValues::Step LooseValues::take_value(char byte, std::string& json) {
    if (m_state == State::QUOTE) {
        switch (m_quotes.take(byte)) {
            case LiteralMatcher::Step::MORE:
                return Step::MORE;
            case LiteralMatcher::Step::MATCH:
                return begin_string(0, false, json);
            case LiteralMatcher::Step::NONE:
                return Step::BAD;
        }
    }
    if (is_space(byte)) return Step::MORE;
    const bool may_end = m_state == State::VALUE_OR_END;
    if (may_end && byte == m_closings.back()) return close(json);
    if (std::exchange(m_needs_comma, false)) json += ", ";
    if (byte == '[') return open(']', json);
    if (byte == '{') return open('}', json);
    if (m_quote.empty()) {
        if (byte == '(') return open(')', json);
        if (byte == '"' || byte == '\'') return begin_string(byte, false, json);
    } else if (byte == m_quote.front()) {
        m_state = State::QUOTE;
        return take_value(byte, json);
    }
    m_word.clear();
    m_state = State::WORD;
    return take_word(byte, json);
}

LooseValues::Step LooseValues::take_word(char byte, std::string& json) {
    const bool belongs = is_name_byte(byte) || byte == '.' || byte == '+' || byte == '-';
    if (belongs) {
        m_word += byte;
        return m_word.size() <= max_word ? Step::MORE : Step::BAD;
    }
    if (!end_word(json)) return Step::BAD;
    return take_after(byte, json);
}

bool LooseValues::end_word(std::string& json) {
    const std::string word = std::exchange(m_word, {});
    m_state = State::AFTER;
    std::string value;
    if (word == "True" || word == "true")
        value = "true";
    else if (word == "False" || word == "false")
        value = "false";
    else if (word == "None" || word == "null")
        value = "null";
    else
        value = json_number(word);
    json += value;
    return !value.empty();
}

LooseValues::Step LooseValues::take_after(char byte, std::string& json) {
    m_state = State::AFTER;
    if (is_space(byte)) return Step::MORE;
    if (byte == m_closings.back()) return close(json);
    if (byte != ',') return Step::BAD;
    if (is_object()) return go(State::KEY);
    m_needs_comma = true;
    return go(State::VALUE_OR_END);
}

LooseValues::Step LooseValues::begin_string(char quote, bool is_key, std::string& json) {
    m_python_quote = quote;
    m_is_key = is_key;
    json += '"';
    return go(State::STRING);
}

LooseValues::Step LooseValues::take_string(char byte, std::string& json) {
    if (m_state == State::ESCAPE) return take_escape(byte, json);
    if (m_state != State::STRING) return take_digit(byte, json);
    if (!m_quote.empty()) return take_between_quotes(byte, json);
    if (byte == m_python_quote) return end_string(json);
    if (byte == '\\') return go(State::ESCAPE);
    append_text_byte(json, byte);
    return Step::MORE;
}

LooseValues::Step LooseValues::take_between_quotes(char byte, std::string& json) {
    m_held_quote += byte;
    while (m_quote.compare(0, m_held_quote.size(), m_held_quote) != 0) {
        append_text_byte(json, m_held_quote.front());
        m_held_quote.erase(0, 1);
    }
    if (m_held_quote != m_quote) return Step::MORE;
    m_held_quote.clear();
    return end_string(json);
}

LooseValues::Step LooseValues::end_string(std::string& json) {
    json += '"';
    return go(m_is_key ? State::ASSIGNMENT : State::AFTER);
}

LooseValues::Step LooseValues::take_escape(char byte, std::string& json) {
    static const std::string letters = "abfnrtv", codes = "\a\b\f\n\r\t\v";
    m_state = State::STRING;
    m_code = 0;
    if (byte == 'x') return begin_code(State::HEX, 2);
    if (byte == 'u') return begin_code(State::HEX, 4);
    if (byte == 'U') return begin_code(State::HEX, 8);
    if (byte >= '0' && byte <= '7') {
        begin_code(State::OCTAL, 3);
        return take_digit(byte, json);
    }
    if (byte == 'N') return Step::BAD;  // a character's name
    if (byte == '\n') return Step::MORE;
    const size_t letter = letters.find(byte);
    if (letter != std::string::npos) {
        append_text_byte(json, codes[letter]);
        return Step::MORE;
    }
    // An escape that Python does not know stays as it is.
    if (byte != '\\' && byte != '\'' && byte != '"') append_text_byte(json, '\\');
    append_text_byte(json, byte);
    return Step::MORE;
}

LooseValues::Step LooseValues::begin_code(State state, int num_digits) {
    m_num_digits = num_digits;
    return go(state);
}

LooseValues::Step LooseValues::take_digit(char byte, std::string& json) {
    const bool is_octal = m_state == State::OCTAL;
    const std::string digits = is_octal ? "01234567" : "0123456789abcdef";
    const bool is_upper = byte >= 'A' && byte <= 'F';
    const size_t digit = digits.find(is_upper ? char(byte - 'A' + 'a') : byte);
    const bool is_digit_here = digit != std::string::npos && !(is_octal && is_upper);
    if (!is_digit_here && !is_octal) return Step::BAD;
    if (is_digit_here) {
        m_code = m_code * uint32_t(digits.size()) + uint32_t(digit);
        if (--m_num_digits > 0) return Step::MORE;
    }
    m_state = State::STRING;
    if (!append_code(json)) return Step::BAD;
    return is_digit_here ? Step::MORE : take_string(byte, json);
}

bool LooseValues::append_code(std::string& json) {
    if (m_code > 0x10FFFF) return false;
    if (m_code >= 0xD800 && m_code <= 0xDFFF) {  // half of a pair, which JSON writes alike
        static const char* const digits = "0123456789abcdef";
        json += "\\u";
        for (int shift = 12; shift >= 0; shift -= 4) json += digits[(m_code >> shift) & 15];
    } else if (m_code < 0x80) {
        append_text_byte(json, char(m_code));
    } else {
        append_utf8(json, m_code);
    }
    return true;
}

LooseValues::Step LooseValues::open(char closing, std::string& json) {
    if (m_closings.size() >= size_t(max_json_levels)) return Step::BAD;
    m_closings += closing;
    json += closing == '}' ? '{' : '[';
    return go(closing == '}' ? State::KEY_OR_END : State::VALUE_OR_END);
}

LooseValues::Step LooseValues::close(std::string& json) {
    json += is_object() ? '}' : ']';
    m_needs_comma = false;
    m_closings.pop_back();
    m_state = State::AFTER;
    return m_closings.empty() ? Step::DONE : Step::MORE;
}

LooseValues::Step LooseValues::go(State state) {
    m_state = state;
    return Step::MORE;
}

}  // namespace pagewheel
