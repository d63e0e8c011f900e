// Values that are written almost as JSON, turned into JSON byte by byte.
#pragma once

#include <cstdint>
#include <string>

#include "parsing/literal_matcher.hpp"

namespace pagewheel {

/// Reads an object to its closing bracket: Python's keyword arguments, `a=1, b='x')`, or the like
/// of `a:1,b:<escape>x<escape>}`. Within are numbers, texts, lists, tuples (which become lists),
/// dicts and the words for true, false and null, Python's and JSON's.
class LooseValues {
public:
    enum class Step { MORE, DONE, BAD };

    /// `quote` is what is before and after a text, which has no escapes then; empty: Python's
    /// texts.
    LooseValues(char closing, char assignment, std::string quote = {});

    /// Appends to `json`, of which `{` comes first.
    Step take(char byte, std::string& json);

    /// No text and no bracket but the object's own is open: a comma would be the object's.
    bool is_between_keys() const;

private:
    // clang-format off
    enum class State {
        KEY_OR_END, KEY, KEY_NAME, ASSIGNMENT, VALUE, VALUE_OR_END, AFTER, WORD,
        QUOTE, STRING, ESCAPE, HEX, OCTAL,
    };
    // clang-format on

    Step take_key(char byte, std::string& json);
    Step take_value(char byte, std::string& json);
    Step take_after(char byte, std::string& json);
    Step take_word(char byte, std::string& json);
    Step take_string(char byte, std::string& json);
    Step take_between_quotes(char byte, std::string& json);
    Step take_escape(char byte, std::string& json);
    Step take_digit(char byte, std::string& json);
    Step begin_code(State state, int num_digits);
    Step begin_string(char quote, bool is_key, std::string& json);
    Step end_string(std::string& json);
    Step open(char closing, std::string& json);
    Step close(std::string& json);
    Step go(State state);
    bool end_word(std::string& json);
    bool append_code(std::string& json);
    bool is_object() const { return m_closings.size() == 1 || m_closings.back() == '}'; }

    const char m_assignment;  // between the outermost keys and their values; ':' in dicts
    const std::string m_quote;
    LiteralMatcher m_quotes;
    State m_state = State::KEY_OR_END;
    bool m_has_begun = false;
    std::string m_closings;    // brackets that will close what is open
    std::string m_word;        // a number, true, false, null, or a key without quotes
    std::string m_held_quote;  // what may be the quote that ends a text
    char m_python_quote = 0;
    bool m_is_key = false;       // of the text that is read
    bool m_needs_comma = false;  // before the next value of a list, if there is one
    int m_num_digits = 0;        // of an escape: that are missing
    uint32_t m_code = 0;         // of an escape
};

}  // namespace pagewheel
