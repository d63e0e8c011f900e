// Arguments in the ways that models write them, turned into JSON byte by byte.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "parsing/message_format.hpp"

namespace pagewheel {

/// Parameters that are texts, by function, of the functions that a model was told of. Formats that
/// write values without quotes ask for it.
struct ToolTypes {
    struct Parameters {
        std::set<std::string> texts;
        std::set<std::string> others;  ///< whose type is known, too
    };
    std::map<std::string, Parameters> by_function;
};

/// Reads the arguments of one call.
class ArgumentReader {
public:
    enum class Step { MORE, DONE, BAD };

    virtual ~ArgumentReader() = default;
    /// Appends to `json`. DONE: the byte was the last one. Nothing may be asked after BAD.
    virtual Step take(char byte, std::string& json) = 0;
};

/// JSON is read from its opening bracket, QUOTED from behind it, PYTHON from behind the
/// parenthesis, and TAGGED from behind the name to `closer`. `types` may be null, and must outlive
/// the reader otherwise.
std::unique_ptr<ArgumentReader> make_argument_reader(const ArgumentFormat& format,
                                                     const std::string& closer,
                                                     const ToolTypes::Parameters* types);

}  // namespace pagewheel
