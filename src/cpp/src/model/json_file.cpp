#include "model/json_file.hpp"

#include <fstream>
#include <iterator>

#include "base/check.hpp"

namespace pagewheel {

void check_is_file(const std::filesystem::path& path) {
    check_file(std::filesystem::is_regular_file(path), path, " is no file");
}

std::string read_text(const std::filesystem::path& path) {
    check_is_file(path);
    std::ifstream stream(path, std::ios::binary);
    check_file(stream.good(), "cannot read ", path);
    return {std::istreambuf_iterator<char>(stream), {}};
}

namespace {

template <class Json>
Json parse(const std::string& text, const MessagePart& what) {
    using Event = typename Json::parse_event_t;
    bool is_deep = false;
    const auto keep = [&](int level, Event event, const Json&) {
        const bool begins = event == Event::object_start || event == Event::array_start;
        is_deep = is_deep || (begins && level >= max_json_levels);
        return !is_deep;
    };
    Json json = Json::parse(text, keep, /*allow_exceptions=*/false);
    check_argument(!is_deep, what, " is JSON of more than ", max_json_levels,
                   " arrays and objects in each other; allowed: ", max_json_levels);
    return json;
}

template <class Json>
std::string dump(const Json& value, int indent) {
    try {
        return value.dump(indent);
    } catch (const typename Json::type_error& error) {
        refuse_argument("JSON holds a text that is not UTF-8: ", error.what());
    }
}

}  // namespace

nlohmann::json parse_json(const std::string& text, const MessagePart& what) {
    return parse<nlohmann::json>(text, what);
}

nlohmann::ordered_json parse_ordered_json(const std::string& text, const MessagePart& what) {
    return parse<nlohmann::ordered_json>(text, what);
}

std::string json_text(const nlohmann::json& value) {
    return dump(value, -1);
}

std::string json_text(const nlohmann::ordered_json& value, int indent) {
    return dump(value, indent);
}

nlohmann::json read_json_object(const std::filesystem::path& path) {
    nlohmann::json json = parse_json(read_text(path), path);
    check_file(json.is_object(), path, " is not a JSON object");
    return json;
}

}  // namespace pagewheel
