// Arguments in the ways that models write them, turned into JSON byte by byte.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "parsing/value_reader.hpp"

namespace pagewheel {

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
