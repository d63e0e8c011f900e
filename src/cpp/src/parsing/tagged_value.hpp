// A value that stands in a text without quotes, up to a tag.
#pragma once

#include <string>
#include <string_view>

namespace pagewheel {

/// Turns it into JSON: as it comes if it is a text, in the end otherwise.
class TaggedValue {
public:
    enum class Type { TEXT, OTHER, UNKNOWN };

    /// `trims_lines`: a line break before it and one after it are not part of it.
    TaggedValue(Type type, std::string close, bool trims_lines);

    /// Appends to `json`. True: the byte was the last of the closing tag.
    bool take(char byte, std::string& json);

private:
    void append(char byte, std::string& json);
    void begin_text(std::string& json);
    void end(std::string& json);

    Type m_type;
    const std::string m_close, m_close_after_line;
    bool m_may_skip_line;
    bool m_is_text = false;  // is given out as one
    std::string m_held;      // what may be the closing tag
    std::string m_value;     // of which it is not known whether it is a text
};

/// JSON of a value that is not empty, if it is JSON, a list or dict as Python writes it, or True,
/// False or None; else empty.
std::string json_of_value(std::string_view value);

}  // namespace pagewheel
