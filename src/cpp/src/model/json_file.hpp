// Reading JSON of unknown origin, with errors that name where it is from.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "check.hpp"
#include "model/text_file.hpp"

namespace pagewheel {

/// Arrays and objects in each other. Copies, destructors and dump() of a value call themselves for
/// each level, and deep ones end on the stack's guard; no model folder or chat comes near this.
constexpr int max_json_levels = 100;

/// The value in `input`, a string or a stream; discarded where it is no JSON. Throws
/// std::invalid_argument, naming `what`, where it has more than max_json_levels: nothing deeper is
/// ever built. nlohmann::ordered_json keeps keys in their order.
template <class Json = nlohmann::json, class Input, class What>
Json parse_json(Input&& input, const What& what) {
    using Event = typename Json::parse_event_t;
    bool is_deep = false;
    const auto keep = [&](int level, Event event, const Json&) {
        const bool begins = event == Event::object_start || event == Event::array_start;
        is_deep = is_deep || (begins && level >= max_json_levels);
        return !is_deep;
    };
    Json json = Json::parse(std::forward<Input>(input), keep, /*allow_exceptions=*/false);
    check_argument(!is_deep, what, " is JSON of more than ", max_json_levels,
                   " arrays and objects in each other; allowed: ", max_json_levels);
    return json;
}

/// The object in `path`. Throws std::invalid_argument naming the file if it cannot be read, is not
/// JSON, is too deep or is no object.
inline nlohmann::json read_json_object(const std::filesystem::path& path) {
    nlohmann::json json = parse_json(read_text(path), path);
    check_argument(json.is_object(), path, " is not a JSON object");
    return json;
}

}  // namespace pagewheel
