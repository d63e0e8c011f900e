// Arguments in the ways that models write them, turned into JSON byte by byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "parsing/bytes.hpp"
#include "parsing/message_format.hpp"

namespace pagewheel {

/// Reads the arguments of one call.
class ArgumentReader {
public:
    virtual ~ArgumentReader() = default;
    /// Appends to `json`.
    virtual ReadStep take(char byte, std::string& json) = 0;
};

/// Reads one value in memory of its depth, which is max_json_levels at most.
///
/// JSON is an object, array or string, and goes on as it is. Control characters in strings, which
/// JSON wants escaped, are accepted and escaped: models write line breaks there. Bytes of other
/// characters are not looked at.
///
/// PYTHON and QUOTED are read from behind their opening bracket: `a=1, b='x')`, or the like of
/// `a:1,b:<escape>x<escape>}`. Within are numbers, texts, lists, tuples (which become lists), dicts
/// and the words for true, false and null, Python's and JSON's.
class ValueReader final : public ArgumentReader {
public:
    /// What the latest byte is of a key or value.
    enum class Mark { NONE, BEGINS_KEY, ENDS_KEY, BEGINS_VALUE, ENDS_VALUE };

    explicit ValueReader(const ArgumentFormat& format = {});

    ReadStep take(char byte, std::string& json) override;

    Mark mark() const { return m_mark; }
    /// Arrays and objects that are open.
    size_t depth() const { return m_closings.size(); }
    bool in_string() const { return m_state >= State::STRING; }

private:
    // clang-format off
    enum class State {
        KEY_OR_END, KEY, KEY_NAME, ASSIGNMENT, VALUE, VALUE_OR_END, AFTER, WORD, QUOTE,
        STRING, ESCAPE, HEX, OCTAL,
    };
    // clang-format on
    using Kind = ArgumentFormat::Kind;

    ReadStep take_any(char byte, std::string& json);
    ReadStep take_key(char byte, std::string& json);
    ReadStep take_value(char byte, std::string& json);
    ReadStep take_quoted(char byte, std::string& json);
    ReadStep take_word(char byte, std::string& json);
    ReadStep begin_json_word(char byte);
    ReadStep take_json_word(char byte, std::string& json);
    ReadStep take_after(char byte, std::string& json);
    ReadStep begin_string(char quote, bool is_key, std::string& json);
    ReadStep end_string(std::string& json);
    ReadStep take_string(char byte, std::string& json);
    ReadStep take_escape(char byte, std::string& json);
    ReadStep begin_code(State state, int num_digits);
    ReadStep take_digit(char byte, std::string& json);
    bool append_code(std::string& json) const;
    ReadStep open(char closing, std::string& json);
    ReadStep close(std::string& json);
    ReadStep go(State state);

    /// Of Python's arguments the outermost bracket is a parenthesis.
    bool is_outermost() const { return m_closings.size() == 1 && m_kind == Kind::PYTHON; }
    bool is_object() const { return is_outermost() || m_closings.back() == '}'; }

    const Kind m_kind;
    const std::string m_quote;  // of QUOTED
    MarkerFinder m_quotes;      // around texts
    State m_state;
    Mark m_mark = Mark::NONE;
    bool m_has_begun = false;
    std::string m_closings;      // brackets that will close what is open
    std::string m_word;          // a number, true, false, null, or a key without quotes
    std::string_view m_missing;  // of JSON's true, false or null
    char m_number_part = 0;      // of a number in JSON, as number_part() names it
    char m_string_quote = 0;
    bool m_is_key = false;       // of the text that is read
    bool m_needs_comma = false;  // before the next value of a list, if there is one
    int m_num_digits = 0;        // of an escape: that are missing
    uint32_t m_code = 0;         // of an escape
};

/// Appends a byte of a text that is not JSON yet.
void append_text_byte(std::string& json, char byte);

/// Whether parameters of a function are texts, as far as their types are known.
using ParameterTypes = std::map<std::string, bool>;
/// The parameters of the functions that a model was told of. Formats that write values without
/// quotes ask for them.
using ToolTypes = std::map<std::string, ParameterTypes>;

/// JSON is read from its opening bracket, QUOTED from behind it, PYTHON from behind the
/// parenthesis, and TAGGED from behind the name to `closer`. `types` may be null, and must outlive
/// the reader otherwise.
std::unique_ptr<ArgumentReader> make_argument_reader(const ArgumentFormat& format,
                                                     const std::string& closer,
                                                     const ParameterTypes* types);

}  // namespace pagewheel
