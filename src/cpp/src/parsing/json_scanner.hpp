// JSON checked byte by byte, in memory of its depth.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "parsing/bytes.hpp"

namespace pagewheel {

/// Reads one object, array or string. Control characters in strings, which JSON wants escaped, are
/// accepted: models write line breaks there. Bytes of other characters are not looked at.
class JsonScanner {
public:
    /// What the latest byte is of a key or value.
    enum class Mark { NONE, BEGINS_KEY, ENDS_KEY, BEGINS_VALUE, ENDS_VALUE };

    /// DONE: the byte was the value's last. More than max_json_levels arrays and objects in each
    /// other are REFUSED.
    ReadStep take(char byte);

    Mark mark() const { return m_mark; }
    /// Arrays and objects that are open.
    size_t depth() const { return m_containers.size(); }
    bool in_string() const { return m_state == State::STRING; }

private:
    // clang-format off
    enum class State {
        VALUE, VALUE_OR_END, KEY, KEY_OR_END, COLON, AFTER, STRING, ESCAPE, HEX, WORD, NUMBER,
    };
    // clang-format on

    ReadStep begin_value(char byte);
    ReadStep take_string(char byte);
    ReadStep take_after(char byte);
    ReadStep begin_string(bool is_key);
    ReadStep close();
    ReadStep go(State state);

    State m_state = State::VALUE;
    Mark m_mark = Mark::NONE;
    std::string m_containers;  // opening brackets
    bool m_is_key = false;     // of the string that is read
    int m_num_hex = 0;         // digits that are missing
    char m_number_part = 0;    // as number_part() names it
    std::string_view m_word;   // what is missing of true, false or null
};

/// The part of a JSON number that `byte` is where it stands behind `part`; 0: it is none of it.
/// Parts: ' ' nothing, '-' the sign, '0' a single zero, 'i' other whole digits, '.', 'f' digits
/// behind that, 'e', 's' the exponent's sign, 'x' its digits.
char number_part(char part, char byte);
bool may_end_number(char part);

/// Appends a byte of JSON within a string, escaped where it is a control character.
void append_string_byte(std::string& json, char byte);
/// Appends a byte of JSON, which stands in a string or not.
inline void append_json_byte(std::string& json, char byte, bool in_string) {
    if (in_string)
        append_string_byte(json, byte);
    else
        json += byte;
}
/// Appends a byte of a text that is not JSON yet: quotes and backslashes are escaped too.
void append_text_byte(std::string& json, char byte);

}  // namespace pagewheel
