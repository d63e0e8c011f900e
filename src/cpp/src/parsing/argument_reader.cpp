#include "parsing/argument_reader.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/code_point.hpp"
#include "model/json_file.hpp"
#include "parsing/bytes.hpp"
#include "parsing/json_scanner.hpp"

namespace pagewheel {
namespace {

constexpr size_t max_word = 4096;      // bytes of a number, or of a key in LooseValues
constexpr size_t max_value = 1 << 16;  // longer values without quotes are texts
constexpr size_t max_key = 1000;       // of tagged arguments

/// A JSON object, given out as it comes.
class JsonArguments final : public ArgumentReader {
public:
    ReadStep take(char byte, std::string& json) override {
        const bool in_string = m_scanner.in_string();
        const ReadStep step = m_scanner.take(byte);
        if (step != ReadStep::REFUSED) append_json_byte(json, byte, in_string);
        return step;
    }

private:
    JsonScanner m_scanner;
};

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

/// Reads an object to its closing bracket: Python's keyword arguments, `a=1, b='x')`, or the like
/// of `a:1,b:<escape>x<escape>}`. Within are numbers, texts, lists, tuples (which become lists),
/// dicts and the words for true, false and null, Python's and JSON's.
class LooseValues final : public ArgumentReader {
public:
    /// `quote` is what is before and after a text, which has no escapes then; empty: Python's
    /// texts.
    LooseValues(char closing, char assignment, std::string quote = {})
        : m_assignment(assignment),
          m_quote(std::move(quote)),
          m_quotes({m_quote}),
          m_closings(1, closing) {}

    ReadStep take(char byte, std::string& json) override {
        if (!std::exchange(m_has_begun, true)) json += '{';
        switch (m_state) {
            case State::KEY_OR_END:
            case State::KEY:
            case State::KEY_NAME:
            case State::ASSIGNMENT:
                return take_key(byte, json);
            case State::VALUE:
            case State::VALUE_OR_END:
                return take_value(byte, json);
            case State::QUOTE:
                return take_quote(byte, json);
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
        return ReadStep::REFUSED;
    }

    /// No text and no bracket but the object's own is open: a comma would be the object's.
    bool is_between_keys() const {
        const bool is_text = m_state == State::STRING || m_state == State::ESCAPE ||
                             m_state == State::HEX || m_state == State::OCTAL;
        return m_closings.size() == 1 && !is_text;
    }

private:
    // clang-format off
    enum class State {
        KEY_OR_END, KEY, KEY_NAME, ASSIGNMENT, VALUE, VALUE_OR_END, AFTER, WORD,
        QUOTE, STRING, ESCAPE, HEX, OCTAL,
    };
    // clang-format on

    ReadStep take_key(char byte, std::string& json) {
        const char assignment = m_closings.size() == 1 ? m_assignment : ':';
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
            if (byte != assignment) return ReadStep::REFUSED;
            json += ": ";
            return go(State::VALUE);
        }
        // A comma may be the last before a bracket, as Python has it.
        if (byte == m_closings.back()) return close(json);
        const bool is_python_dict = m_quote.empty() && m_closings.size() > 1;
        const bool begins_key = is_python_dict
                                    ? byte == '"' || byte == '\''
                                    : is_name_byte(byte) && !(m_quote.empty() && is_digit(byte));
        if (!begins_key) return ReadStep::REFUSED;
        if (m_state == State::KEY) json += ", ";
        if (is_python_dict) return begin_string(byte, true, json);
        m_word = byte;
        return go(State::KEY_NAME);
    }

    ReadStep take_quote(char byte, std::string& json) {
        m_held_quote += byte;
        if (m_quote.compare(0, m_held_quote.size(), m_held_quote) != 0) return ReadStep::REFUSED;
        if (m_held_quote.size() < m_quote.size()) return ReadStep::MORE;
        m_held_quote.clear();
        return begin_string(0, false, json);
    }

    ReadStep take_value(char byte, std::string& json) {
        if (is_space(byte)) return ReadStep::MORE;
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
            return take_quote(byte, json);
        }
        m_word.clear();
        m_state = State::WORD;
        return take_word(byte, json);
    }

    ReadStep take_word(char byte, std::string& json) {
        const bool belongs = is_name_byte(byte) || byte == '.' || byte == '+' || byte == '-';
        if (belongs) {
            m_word += byte;
            return m_word.size() <= max_word ? ReadStep::MORE : ReadStep::REFUSED;
        }
        const std::string word = std::exchange(m_word, {});
        static const std::map<std::string, std::string> words{
            {"True", "true"}, {"False", "false"}, {"None", "null"},
            {"true", "true"}, {"false", "false"}, {"null", "null"}};
        const auto known = words.find(word);
        const std::string value = known != words.end() ? known->second : json_number(word);
        if (value.empty()) return ReadStep::REFUSED;
        json += value;
        return take_after(byte, json);
    }

    ReadStep take_after(char byte, std::string& json) {
        m_state = State::AFTER;
        if (is_space(byte)) return ReadStep::MORE;
        if (byte == m_closings.back()) return close(json);
        if (byte != ',') return ReadStep::REFUSED;
        if (is_object()) return go(State::KEY);
        m_needs_comma = true;
        return go(State::VALUE_OR_END);
    }

    ReadStep begin_string(char quote, bool is_key, std::string& json) {
        m_python_quote = quote;
        m_is_key = is_key;
        json += '"';
        return go(State::STRING);
    }

    ReadStep take_string(char byte, std::string& json) {
        if (m_state == State::ESCAPE) return take_escape(byte, json);
        if (m_state != State::STRING) return take_digit(byte, json);
        if (!m_quote.empty()) return take_between_quotes(byte, json);
        if (byte == m_python_quote) return end_string(json);
        if (byte == '\\') return go(State::ESCAPE);
        append_text_byte(json, byte);
        return ReadStep::MORE;
    }

    ReadStep take_between_quotes(char byte, std::string& json) {
        std::string passed;
        const bool has_ended = m_quotes.take(byte, passed) != MarkerFinder::npos;
        for (const char each : passed) append_text_byte(json, each);
        return has_ended ? end_string(json) : ReadStep::MORE;
    }

    ReadStep end_string(std::string& json) {
        json += '"';
        return go(m_is_key ? State::ASSIGNMENT : State::AFTER);
    }

    ReadStep take_escape(char byte, std::string& json) {
        static const std::string letters = "abfnrtv", codes = "\a\b\f\n\r\t\v";
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
        if (byte != '\\' && byte != '\'' && byte != '"') append_text_byte(json, '\\');
        append_text_byte(json, byte);
        return ReadStep::MORE;
    }

    ReadStep begin_code(State state, int num_digits) {
        m_code = 0;
        m_num_digits = num_digits;
        return go(state);
    }

    ReadStep take_digit(char byte, std::string& json) {
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

    bool append_code(std::string& json) const {
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

    ReadStep open(char closing, std::string& json) {
        if (m_closings.size() >= size_t(max_json_levels)) return ReadStep::REFUSED;
        m_closings += closing;
        json += closing == '}' ? '{' : '[';
        return go(closing == '}' ? State::KEY_OR_END : State::VALUE_OR_END);
    }

    ReadStep close(std::string& json) {
        json += is_object() ? '}' : ']';
        m_needs_comma = false;
        m_closings.pop_back();
        m_state = State::AFTER;
        return m_closings.empty() ? ReadStep::DONE : ReadStep::MORE;
    }

    ReadStep go(State state) {
        m_state = state;
        return ReadStep::MORE;
    }

    bool is_object() const { return m_closings.size() == 1 || m_closings.back() == '}'; }

    const char m_assignment;  // between the outermost keys and their values; ':' in dicts
    const std::string m_quote;
    MarkerFinder m_quotes;  // that end a text
    State m_state = State::KEY_OR_END;
    bool m_has_begun = false;
    std::string m_closings;    // brackets that will close what is open
    std::string m_word;        // a number, true, false, null, or a key without quotes
    std::string m_held_quote;  // what may be the quote that begins a text
    char m_python_quote = 0;
    bool m_is_key = false;       // of the text that is read
    bool m_needs_comma = false;  // before the next value of a list, if there is one
    int m_num_digits = 0;        // of an escape: that are missing
    uint32_t m_code = 0;         // of an escape
};

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
        if (scanner.take(byte) == ReadStep::REFUSED) return {};
        append_json_byte(json, byte, in_string);
    }
    return !trimmed(value).empty() && scanner.take(']') == ReadStep::DONE ? json : "";
}

/// JSON of what Python would write; else empty.
std::string if_python(std::string_view value) {
    LooseValues values(')', '=');
    std::string json;
    for (const char byte : {'v', '='}) values.take(byte, json);
    const size_t begin = json.size();
    for (const char byte : value) {
        if (byte == ',' && values.is_between_keys()) return {};  // another key would begin
        if (values.take(byte, json) != ReadStep::MORE) return {};
    }
    const bool is_whole = values.take(')', json) == ReadStep::DONE;
    return is_whole ? json.substr(begin, json.size() - begin - 1) : "";
}

/// JSON of a value that is not empty, if it is JSON, a list or dict as Python writes it, or True,
/// False or None; else empty.
std::string json_of_value(std::string_view value) {
    const std::string json = if_json(value);
    const bool may_be_python = value.front() == '[' || value.front() == '{' || value == "True" ||
                               value == "False" || value == "None";
    return json.empty() && may_be_python ? if_python(value) : json;
}

/// A value without quotes, up to a tag, as JSON: as it comes if it is a text, at its end otherwise.
class TaggedValue {
public:
    enum class Type { TEXT, OTHER, UNKNOWN };

    /// `trims_lines`: a line break before the value and one after it are not part of it.
    TaggedValue(Type type, const std::string& close, bool trims_lines)
        : m_type(type),
          m_closers({close, trims_lines ? "\n" + close : close}),
          m_may_skip_line(trims_lines) {}

    /// Appends to `json`. True: the byte was the last of the closing tag.
    bool take(char byte, std::string& json) {
        if (std::exchange(m_may_skip_line, false) && byte == '\n') return false;
        std::string passed;
        const bool has_ended = m_closers.take(byte, passed) != MarkerFinder::npos;
        for (const char each : passed) append(each, json);
        if (has_ended) end(json);
        return has_ended;
    }

private:
    void append(char byte, std::string& json) {
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

    void begin_text(std::string& json) {
        m_is_text = true;
        json += '"';
        for (const char early : std::exchange(m_value, {})) append_text_byte(json, early);
    }

    void end(std::string& json) {
        if (!m_is_text) {
            const bool may_be_json = m_type != Type::TEXT && !m_value.empty();
            const std::string value = may_be_json ? json_of_value(m_value) : "";
            json += value;
            if (!value.empty()) return;
            begin_text(json);
        }
        json += '"';
    }

    const Type m_type;
    MarkerFinder m_closers;
    bool m_may_skip_line;
    bool m_is_text = false;  // is given out as one
    std::string m_value;     // of which it is not known whether it is a text
};

/// A tag for each argument. A value is a text where the parameter is known to be one. Else it is
/// JSON if it can be, or what Python writes for a list, a dict, true, false or null, or else a
/// text.
class TaggedArguments final : public ArgumentReader {
public:
    TaggedArguments(const ArgumentFormat& format, const std::string& closer,
                    const ParameterTypes* types)
        : m_format(format),
          m_types(types),
          m_tags({trimmed(format.key_open), closer}),
          m_value_open({trimmed(format.value_open)}) {}

    ReadStep take(char byte, std::string& json) override {
        switch (m_place) {
            case Place::TAGS:
                return take_tag(byte, json);
            case Place::KEY:
                return take_key(byte, json);
            case Place::VALUE_OPEN:
                if (is_space(byte) && !m_value_open.is_within()) return ReadStep::MORE;
                return after(m_value_open.take(byte), Place::VALUE);
            case Place::VALUE:
                if (m_value->take(byte, json)) m_place = Place::TAGS;
                return ReadStep::MORE;
        }
        return ReadStep::REFUSED;
    }

private:
    enum class Place { TAGS, KEY, VALUE_OPEN, VALUE };

    ReadStep after(ReadStep step, Place next) {
        if (step != ReadStep::DONE) return step;
        m_place = next;
        return ReadStep::MORE;
    }

    ReadStep take_tag(char byte, std::string& json) {
        if (is_space(byte) && !m_tags.is_within()) return ReadStep::MORE;
        const ReadStep step = m_tags.take(byte);
        if (step == ReadStep::DONE && m_tags.match() == 1) {
            json += '}';
            return ReadStep::DONE;
        }
        m_key.clear();
        return after(step, Place::KEY);
    }

    ReadStep take_key(char byte, std::string& json) {
        m_key += byte;
        if (m_key.size() > max_key) return ReadStep::REFUSED;
        for (const std::string* end : {&m_format.text_key_end, &m_format.json_key_end}) {
            const size_t size = end->size();
            if (size == 0 || m_key.size() < size ||
                m_key.compare(m_key.size() - size, size, *end) != 0)
                continue;
            m_key.erase(m_key.size() - size);
            begin_value(end == &m_format.text_key_end, json);
            return ReadStep::MORE;
        }
        return ReadStep::MORE;
    }

    void begin_value(bool has_text_key_end, std::string& json) {
        json += std::exchange(m_is_first, false) ? "\"" : ", \"";
        for (const char byte : m_key) append_text_byte(json, byte);
        json += "\": ";
        m_value.emplace(type(has_text_key_end), m_format.value_close, m_format.trims_lines);
        m_place = m_format.value_open.empty() ? Place::VALUE : Place::VALUE_OPEN;
    }

    TaggedValue::Type type(bool has_text_key_end) const {
        using Type = TaggedValue::Type;
        if (!m_format.json_key_end.empty()) return has_text_key_end ? Type::TEXT : Type::OTHER;
        if (!m_types || m_types->count(m_key) == 0) return Type::UNKNOWN;
        return m_types->at(m_key) ? Type::TEXT : Type::OTHER;
    }

    const ArgumentFormat& m_format;
    const ParameterTypes* m_types;
    Place m_place = Place::TAGS;
    LiteralMatcher m_tags, m_value_open;
    std::string m_key;
    std::optional<TaggedValue> m_value;
    bool m_is_first = true;
};

}  // namespace

std::unique_ptr<ArgumentReader> make_argument_reader(const ArgumentFormat& format,
                                                     const std::string& closer,
                                                     const ParameterTypes* types) {
    switch (format.kind) {
        case ArgumentFormat::Kind::JSON:
            return std::make_unique<JsonArguments>();
        case ArgumentFormat::Kind::PYTHON:
            return std::make_unique<LooseValues>(')', '=');
        case ArgumentFormat::Kind::QUOTED:
            return std::make_unique<LooseValues>('}', ':', format.quote);
        case ArgumentFormat::Kind::TAGGED:
            return std::make_unique<TaggedArguments>(format, closer, types);
    }
    return nullptr;
}

}  // namespace pagewheel
