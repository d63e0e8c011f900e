// Which pagewheel.json this code understands (docs/stability.md).
#pragma once

#include <nlohmann/json.hpp>

#include "base/check.hpp"
#include "model/json_file.hpp"

namespace pagewheel {

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
