// Tool calls with a tag for each argument, whose values have no quotes.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "parsing/call_notation.hpp"
#include "parsing/call_reader.hpp"
#include "parsing/literal_matcher.hpp"

namespace pagewheel {

struct TaggedCallsFormat {
    std::string opener;    ///< before a name; empty: the section begins with the name
    std::string name_end;  ///< empty: a space or the next tag
    std::string key_open;
    /// After a key. The second one, if there is one, says that the value is no text.
    std::vector<std::string> key_ends;
    bool ends_tell_types = false;  ///< The first one says that it is a text.
    std::string value_open;        ///< after spaces; may be empty
    std::string value_close;
    bool trims_lines = false;  ///< A value has a line break before it and one after it.
    std::string call_close;
    std::string section_close;  ///< empty: call_close
};

/// A value is a text where the function's parameter is known to be one. Else it is JSON if it can
/// be, or what Python writes for a list, a dict, true, false or null, or else a text.
CallReaderMaker tagged_calls(TaggedCallsFormat format);

/// How such arguments are written, with a line for each tag.
ArgumentNotation tagged_arguments(const TaggedCallsFormat& format);

/// The call after `open`, which ends with what is before the name.
CallNotation tagged_notation(const TaggedCallsFormat& format, std::string trigger,
                             std::string open);

}  // namespace pagewheel
