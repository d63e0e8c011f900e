// Reading a JSON file with errors that name it.
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "check.hpp"

namespace pagewheel {

/// The object in `path`. Throws std::invalid_argument naming the file if it cannot be read, is not
/// JSON or is no object.
inline nlohmann::json read_json_object(const std::filesystem::path& path) {
    std::ifstream file(path);
    check_argument(file.good(), "cannot read ", path);
    nlohmann::json json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
    check_argument(json.is_object(), path, " is not a JSON object");
    return json;
}

}  // namespace pagewheel
