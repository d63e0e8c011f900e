// How models write reasoning and tool calls. Each format is one entry in message_formats.cpp, from
// which the streaming reader (call_reader.cpp) and the grammar (tool_grammar.cpp) are made.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace pagewheel {

/// How arguments are written.
struct ArgumentFormat {
    enum class Kind {
        JSON,
        PYTHON,  ///< a=1, b='x'
        QUOTED,  ///< {a:1,b:QxQ} with a quote Q
        TAGGED   ///< a tag for each; texts have no quotes
    };
    Kind kind = Kind::JSON;
    std::string quote = {};  ///< of QUOTED
    // Of TAGGED: what stands around a key and around a value.
    std::string key_open = {};
    std::string text_key_end = {};
    std::string json_key_end = {};  ///< of a value that is no text; empty: the same
    std::string value_open = {};
    std::string value_close = {};  ///< A text ends where this first comes.
    bool trims_lines = false;      ///< A value has a line break before it and one after it.
};

/// One way to write a section of calls: marker, open, calls with the separator between them, close.
/// Grammars write exactly these literals. Readers ignore white space around them, and take JSON in
/// any order of its keys.
struct CallFormat {
    /// The section begins with it. Empty, or a token that is dropped: the section begins with what
    /// opens its first call, and everything that a call has must be there.
    std::string marker = {};
    std::string open = {};
    std::string before_name = {}, after_name = {};
    ArgumentFormat arguments = {};
    std::string after_arguments = {};
    std::string separator = {};
    std::string close = {};
    bool is_object = false;     ///< A call is a JSON object, and the name one of its members.
    bool has_one_call = false;  ///< in a section
    bool may_repeat = false;    ///< Sections follow each other, with the separator between them.
    // An id behind the name is for readers alone, unless it begins with `id_begin`.
    std::string before_id = {};
    std::string id_begin = {};  ///< Not empty: the id is this, the name, `before_id` and a number.
    // Only readers take this.
    bool may_omit_after_name = false;  ///< The arguments may begin right behind the name.
    // Only grammars use this.
    std::string trigger = {};  ///< instead of the marker, where a text may have that without calls
};

/// Tags around reasoning.
struct ReasoningTags {
    std::vector<std::string> open;  ///< none: sections say where reasoning begins
    std::vector<std::string> close;
};

/// What a family of models writes. No marker is within another one.
struct MessageFormat {
    std::string name;
    std::string models;  ///< which have it, in words
    /// A chat template has the first format of which it has all texts of one of these lists.
    std::vector<std::vector<std::string>> template_signs;
    std::optional<ReasoningTags> reasoning = {};
    std::vector<CallFormat> calls = {};  ///< which the model may choose from; none: no tools
    /// Tokens around messages and calls, which are no content.
    std::vector<std::string> dropped = {};
    /// Some markers are special tokens: text that is decoded without them cannot be parsed.
    bool needs_special_tokens = false;
    /// Not empty: a text is calls or has none. A regular expression of what it has not then.
    std::string not_in_text = {};
    bool has_channels = false;  ///< Messages have headers, as gpt-oss writes them.
};

/// In the order in which chat templates are compared with them.
const std::vector<MessageFormat>& message_formats();

/// Throws InvalidArgument that lists the names there are.
const MessageFormat& find_message_format(const std::string& name);

}  // namespace pagewheel
