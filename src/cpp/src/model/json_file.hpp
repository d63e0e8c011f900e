// Reading JSON of unknown origin, with errors that name where it is from.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "base/check.hpp"

namespace pagewheel {

/// Arrays and objects in each other. Copies, destructors and dump() of a value call themselves for
/// each level, and deep ones end on the stack's guard; no model folder or chat comes near this.
constexpr int max_json_levels = 100;

/// The value in `text`; discarded where it is no JSON. Throws InvalidArgument, naming `what`,
/// where it has more than max_json_levels: nothing deeper is ever built.
nlohmann::json parse_json(const std::string& text, const MessagePart& what);

/// The same, with keys in the order they were given.
nlohmann::ordered_json parse_ordered_json(const std::string& text, const MessagePart& what);

/// The value as text; `indent` spaces a level, or in one line. Throws InvalidArgument where it
/// holds a text that is not UTF-8. Here because it compiles slowly, as parsing does.
std::string json_text(const nlohmann::json& value);
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

/// The object in `path`. Throws InvalidArgument naming the file if it cannot be read, is not
/// JSON, is too deep or is no object.
nlohmann::json read_json_object(const std::filesystem::path& path);

}  // namespace pagewheel
