// What the tools that a model was told of say about their parameters.
#pragma once

#include <string>

#include "parsing/call_reader.hpp"

namespace pagewheel {

/// Of a JSON array of tools as chat templates have them: {"type": "function", "function": {"name",
/// "parameters": JSON schema}}, or what "function" holds alone. Throws InvalidArgument if it
/// is no array of objects.
ToolTypes tool_types(const std::string& tools_json);

}  // namespace pagewheel
