#include "parsing/tool_types.hpp"

#include "base/check.hpp"
#include "model/json_file.hpp"

namespace pagewheel {
namespace {

const nlohmann::json* find(const nlohmann::json& object, const char* key) {
    const auto found = object.is_object() ? object.find(key) : object.end();
    return found == object.end() ? nullptr : &*found;
}

/// Text or not, where the schema says it in plain words.
void add_parameter(const std::string& name, const nlohmann::json& schema,
                   ToolTypes::Parameters& parameters) {
    const nlohmann::json* type = find(schema, "type");
    if (!type || !type->is_string()) return;
    (*type == "string" ? parameters.texts : parameters.others).insert(name);
}

}  // namespace

ToolTypes tool_types(const std::string& tools_json) {
    const nlohmann::json tools = parse_json(tools_json, "the list of tools");
    check_argument(tools.is_array(), "tools must be an array, got ", tools_json);
    ToolTypes types;
    for (const nlohmann::json& tool : tools) {
        check_argument(tool.is_object(), "a tool must be an object, got ", json_text(tool));
        const nlohmann::json* inner = find(tool, "function");
        const nlohmann::json& function = inner ? *inner : tool;
        const nlohmann::json* name = find(function, "name");
        const nlohmann::json* schema = find(function, "parameters");
        const nlohmann::json* properties = schema ? find(*schema, "properties") : nullptr;
        if (!name || !name->is_string() || !properties || !properties->is_object()) continue;
        ToolTypes::Parameters& parameters = types.by_function[*name];
        for (const auto& [key, value] : properties->items()) add_parameter(key, value, parameters);
    }
    return types;
}

}  // namespace pagewheel
