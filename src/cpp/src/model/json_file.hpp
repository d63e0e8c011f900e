// Reading text and JSON of unknown origin, with errors that name where it is from.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "base/check.hpp"

namespace pagewheel {

/// Throws InvalidArgument where `path` is no regular file: a pipe would never end.
void check_is_file(const std::filesystem::path& path);

/// All bytes. Throws InvalidArgument where `path` is no regular file or cannot be read.
std::string read_text(const std::filesystem::path& path);

/// Arrays and objects in each other. Copies, destructors and dump() of a value call themselves for
/// each level, and deep ones end on the stack's guard; no model folder or chat comes near this.
constexpr int max_json_levels = 100;

/// The value in `text`; discarded where it is no JSON. Throws InvalidArgument, naming `what`,
/// where it has more than max_json_levels: nothing deeper is ever built.
nlohmann::json parse_json(const std::string& text, const MessagePart& what);

/// parse_json() with keys in the order they were given.
nlohmann::ordered_json parse_ordered_json(const std::string& text, const MessagePart& what);

/// The value as text; `indent` spaces a level, or in one line. Throws InvalidArgument where it
/// holds a text that is not UTF-8. Here because it compiles slowly, as parsing does.
std::string json_text(const nlohmann::json& value);
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

/// The object in `path`. Throws InvalidArgument naming the file if it cannot be read, is not
/// JSON, is too deep or is no object.
nlohmann::json read_json_object(const std::filesystem::path& path);

/// Raised when a key of pagewheel.json gets another meaning, or a folder can no longer be run
/// without a new key. Keys that older code may ignore do not raise it. The writer's number stands
/// in convert's files/folders.py.
constexpr int newest_description_version = 1;

/// Throws InvalidArgument if `description` was written for newer code. Folders of before
/// there were versions have none: they are of version 1.
inline void check_description_version(const nlohmann::json& description) {
    const auto version = description.find("version");
    if (version == description.end()) return;
    check_file(version->is_number_integer() && *version >= 1, "version is ",
               json_text(*version).substr(0, 100), "; allowed: integers from 1 to ",
               newest_description_version);
    check_file(*version <= newest_description_version, "version is ", *version, "; allowed: 1 to ",
               newest_description_version,
               ". A newer pagewheel wrote this folder: install that one, or convert the model "
               "again with this one");
}

}  // namespace pagewheel
