// JSON checked byte by byte, in memory of its depth.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace pagewheel {

/// Reads one object, array or string. Control characters in strings, which JSON wants escaped, are
/// accepted: models write line breaks there. Bytes of other characters are not looked at.
class JsonScanner {
public:
    enum class Step { MORE, DONE, BAD };
    /// What the latest byte is of a key or value.
    enum class Mark { NONE, BEGINS_KEY, ENDS_KEY, BEGINS_VALUE, ENDS_VALUE };

    /// DONE: the byte was the value's last. Nothing may be asked after BAD. More than
    /// max_json_levels arrays and objects in each other are BAD.
    Step take(char byte);

    Mark mark() const { return m_mark; }
    /// Arrays and objects that are open.
    size_t depth() const { return m_containers.size(); }
    bool in_string() const { return m_state == State::STRING; }

private:
    // clang-format off
    enum class State {
        VALUE, VALUE_OR_END, KEY, KEY_OR_END, COLON, AFTER,
        STRING, ESCAPE, HEX, WORD,
        MINUS, ZERO, INTEGER, POINT, FRACTION, EXPONENT, EXPONENT_SIGN, EXPONENT_DIGITS,
    };
    // clang-format on

    Step begin_value(char byte);
    Step take_string(char byte);
    Step take_number(char byte);
    Step take_after(char byte);
    Step begin_string(bool is_key);
    Step open(char bracket);
    Step close();
    Step go(State state);
    Step bad() const { return Step::BAD; }

    State m_state = State::VALUE;
    Mark m_mark = Mark::NONE;
    std::string m_containers;  // opening brackets
    bool m_is_key = false;     // of the string that is read
    int m_num_hex = 0;         // digits that are missing
    std::string_view m_word;   // what is missing of true, false or null
};

/// Appends a byte of JSON within a string, escaped where it is a control character.
void append_string_byte(std::string& json, char byte);
/// The same for a text that is not JSON yet: quotes and backslashes are escaped too.
void append_text_byte(std::string& json, char byte);

}  // namespace pagewheel
