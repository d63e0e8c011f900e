// How a family writes tool calls, for grammars. The readers beside it take more than this.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace pagewheel {

/// How arguments are written.
struct ArgumentNotation {
    enum class Kind {
        JSON,
        PYTHON,  ///< a=1, b='x'
        QUOTED,  ///< {a:1,b:QxQ} with a quote Q
        TAGGED   ///< a tag for each
    };
    Kind kind = Kind::JSON;
    std::string quote = {};  ///< of QUOTED
    /// Of TAGGED: what stands around a key, and behind a value.
    std::string key_open = {};
    std::string text_key_end = {}, json_key_end = {};
    std::string json_value_end = {};  ///< before value_close, if the value is no text
    std::string value_close = {};     ///< A text ends where this first comes.
    std::string after_value = {};
};

/// One section of calls: open, calls with the separator between them, close.
struct CallNotation {
    /// The section begins with it. In free text nothing but a section may begin so.
    std::string trigger;
    std::string open = {};  ///< after the trigger
    std::string before_name = {}, after_name = {};
    ArgumentNotation arguments = {};
    std::string after_arguments = {};
    std::string separator = {};
    std::string close = {};
    bool has_one_call = false;
    bool may_repeat = false;  ///< Sections follow each other, with the separator between them.
};

struct CallNotations {
    std::vector<CallNotation> sections = {};  ///< which the model may choose from
    /// Not empty: a text is calls or has none. A regular expression of what it has not then.
    std::string not_in_text = {};
    bool has_channels = false;  ///< as gpt-oss's messages
};

}  // namespace pagewheel
