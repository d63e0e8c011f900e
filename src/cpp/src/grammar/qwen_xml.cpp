#include "grammar/qwen_xml.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.hpp"
#include "grammar/json_schema.hpp"
#include "pagewheel/grammar_matcher.hpp"

namespace pagewheel {
namespace {

using nlohmann::ordered_json;

constexpr const char* white_space = "/[ \\t\\r\\n]{0,128}/";
constexpr const char* end_of_parameter = "\"</parameter>\"";

bool is_annotation(const std::string& keyword) {
    for (const char* each : {"title", "description", "default", "examples", "$comment",
                             "deprecated", "readOnly", "writeOnly", "type"})
        if (keyword == each) return true;
    return false;
}

/// Values as they are, without quotes.
std::string string_value(const ordered_json& schema, const std::string& name, LarkWriter& lark) {
    ordered_json values;
    for (const auto& [keyword, value] : schema.items()) {
        if (keyword == "enum")
            values = value;
        else if (keyword == "const")
            values = ordered_json::array({value});
        else if (!is_annotation(keyword))
            throw GrammarError(concat("QwenXMLParametersFormat: keyword '", keyword,
                                      "' of the string at /properties/", name,
                                      " is not supported; allowed are enum and const"));
    }
    if (values.is_null()) return lark.add_rule(concat("/(?s:.*)/ ", end_of_parameter), "[lazy]");
    std::string body;
    for (const ordered_json& value : values) {
        if (!value.is_string())
            throw GrammarError(concat("QwenXMLParametersFormat: the enum at /properties/", name,
                                      " has values that are no strings"));
        body += (body.empty() ? "" : " | ") + lark_string(value.get<std::string>());
    }
    const std::string terminal = lark.add_terminal(body);
    return lark.add_rule(lark.add_terminal(
        concat(white_space, " (", terminal, ") ", white_space, ' ', end_of_parameter)));
}

std::string json_value(ordered_json schema, const ordered_json& root, LarkWriter& lark,
                       const GrammarLimits& limits, bool has_open_objects) {
    if (schema.is_boolean() && schema.get<bool>()) schema = ordered_json::object();
    if (schema.is_object())
        for (const char* definitions : {"$defs", "definitions"})
            if (root.contains(definitions)) schema[definitions] = root[definitions];
    const std::string space = lark.add_terminal(white_space);
    return lark.add_rule(
        concat(space, " %json ", prepare_json_schema(schema.dump(), limits, has_open_objects)));
}

}  // namespace

std::string qwen_xml_to_lark(const std::string& schema, LarkWriter& lark,
                             const GrammarLimits& limits, bool has_open_objects) {
    prepare_json_schema(schema, limits, true);  // checks it
    const ordered_json root = ordered_json::parse(schema);
    for (const auto& [keyword, value] : root.items())
        if (!is_annotation(keyword) && keyword != "properties" && keyword != "required" &&
            keyword != "$defs" && keyword != "definitions" && keyword != "$schema" &&
            keyword != "$id" && keyword != "additionalProperties")
            throw GrammarError(concat("QwenXMLParametersFormat: keyword '", keyword,
                                      "' of the schema is not supported"));
    const bool is_object = root.value("type", ordered_json("object")) == "object";
    if (!is_object || !root.contains("properties") || !root["properties"].is_object())
        throw GrammarError("QwenXMLParametersFormat needs a schema of an object with properties");

    const ordered_json required = root.value("required", ordered_json::array());
    std::string body;
    for (const auto& [name, property] : root["properties"].items()) {
        const bool is_string =
            property.is_object() && property.value("type", ordered_json()) == "string";
        const std::string value = is_string
                                      ? string_value(property, name, lark)
                                      : json_value(property, root, lark, limits, has_open_objects);
        std::string rest =
            is_string
                ? value
                : concat(value, ' ', lark.add_terminal(concat(white_space, ' ', end_of_parameter)));
        const std::string begin =
            lark.add_terminal(concat(white_space, ' ', lark_string("<parameter=" + name + ">")));
        const bool is_required =
            std::find(required.begin(), required.end(), name) != required.end();
        body += lark.add_rule(begin + ' ' + rest) + (is_required ? " " : "? ");
    }
    return lark.add_rule(body + lark.add_terminal(white_space));
}

}  // namespace pagewheel
