#include "grammar/json_schema.hpp"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/check.hpp"
#include "grammar/schema_numbers.hpp"
#include "pagewheel/grammar_matcher.hpp"

namespace pagewheel {
namespace {

using nlohmann::json;

// Enough for lines that are indented by 31 times four spaces.
constexpr const char* own_options = R"("x-guidance":{"whitespace_pattern":"[ \\t\\r\\n]{1,128}"})";

size_t depth_of(const std::string& text) {
    size_t depth = 0, deepest = 0;
    bool in_string = false;
    for (size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (in_string) {
            if (c == '\\')
                ++i;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            deepest = std::max(deepest, ++depth);
        } else if ((c == '}' || c == ']') && depth > 0) {
            --depth;
        }
    }
    return deepest;
}

/// A keyword of a schema, or of a schema within it.
struct Keyword {
    const SchemaPlace& schema;  // that has it
    const std::string& name;
    const json& value;
};

bool is_one_of(const std::string& name, std::initializer_list<const char*> names) {
    return std::any_of(names.begin(), names.end(), [&](const char* each) { return name == each; });
}

/// Calls visit for every keyword of the schema and of those within it.
void for_each_keyword(const json& schema, const SchemaPlace& place,
                      const std::function<void(const Keyword&)>& visit) {
    if (!schema.is_object()) return;
    for (const auto& [key, value] : schema.items()) {
        const std::string& name = key;
        visit({place, name, value});
        const SchemaPlace inner{&place, &name};
        const bool is_map = is_one_of(name, {"properties", "patternProperties", "$defs",
                                             "definitions", "dependentSchemas", "dependencies"});
        const bool is_list = is_one_of(name, {"allOf", "anyOf", "oneOf", "prefixItems", "items"});
        if (is_map && value.is_object()) {
            for (const auto& [member, each] : value.items())
                for_each_keyword(each, {&inner, &member}, visit);
        } else if (is_list && value.is_array()) {
            for (size_t i = 0; i < value.size(); ++i)
                for_each_keyword(value[i], {&inner, nullptr, i}, visit);
        } else if (is_one_of(name, {"items", "additionalProperties", "additionalItems", "not", "if",
                                    "then", "else", "contains", "propertyNames", "unevaluatedItems",
                                    "unevaluatedProperties"})) {
            for_each_keyword(value, inner, visit);
        }
    }
}

/// Whether llguidance's error can be about the keyword: it names it, or holds its value.
bool is_about(const std::string& error, const Keyword& keyword) {
    const auto begins = [&](const char* text) { return error.rfind(text, 0) == 0; };
    const auto holds = [&](const std::string& text) {
        return error.find(text) != std::string::npos;
    };
    const std::string value =
        keyword.value.is_string() ? keyword.value.get<std::string>() : std::string();
    if (holds("Unimplemented keys: ")) return holds('"' + keyword.name + '"');
    if (holds("oneOf constraints are not supported")) return keyword.name == "oneOf";
    if (holds("Unknown format: "))
        return keyword.name == "format" && holds("Unknown format: " + value);
    if (holds("Invalid type: "))
        return keyword.name == "type" && (value.empty() || holds("Invalid type: " + value));
    if (holds("regex parse error")) {
        if (keyword.name == "pattern") return holds(value);
        if (keyword.name != "patternProperties" || !keyword.value.is_object()) return false;
        const auto patterns = keyword.value.items();
        return std::any_of(patterns.begin(), patterns.end(),
                           [&](const auto& each) { return holds(each.key()); });
    }
    if (holds("integer range: ") || holds("float range: "))
        return is_one_of(keyword.name,
                         {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "const"});
    if (begins("Resource '") || begins("Pointer '") || holds("Unresolvable"))
        return keyword.name == "$ref" && !value.empty() &&
               holds(value[0] == '#' ? value.substr(1) : value.substr(0, value.find('#')));
    return holds("for '" + keyword.name + "'") || holds(keyword.name + " must be");
}

}  // namespace

std::string prepare_json_schema(const std::string& schema, const GrammarLimits& limits) {
    if (schema.size() > limits.text_bytes)
        throw GrammarError(
            concat("a JSON schema of ", schema.size(), " bytes; allowed are ", limits.text_bytes));
    if (const size_t depth = depth_of(schema); depth > limits.json_depth)
        throw GrammarError(concat("a JSON schema that is ", depth, " levels deep; allowed are ",
                                  limits.json_depth));
    const json parsed = parse_schema(schema);
    if (parsed.is_boolean() && parsed.get<bool>()) return concat('{', own_options, '}');
    if (!parsed.is_object())
        throw GrammarError(concat("a JSON schema must be an object or true, got ",
                                  parsed.is_boolean() ? "false" : parsed.type_name()));
    check_numbers(parsed);
    if (parsed.contains("x-guidance")) return schema;
    // The text stays as it is: parsing and writing would change the order and large numbers.
    const size_t begin = schema.find('{') + 1;
    return concat(schema.substr(0, begin), own_options, parsed.empty() ? "" : ",",
                  schema.substr(begin));
}

std::string find_in_schema(const std::string& schema, const std::string& error) {
    constexpr size_t most_places = 5;
    size_t places = 0;
    std::string result = error + "; at ";
    for_each_keyword(parse_schema(schema), {}, [&](const Keyword& keyword) {
        if (!is_about(error, keyword) || ++places > most_places) return;
        result += (places == 1 ? "" : ", ") + SchemaPlace{&keyword.schema, &keyword.name}.pointer();
    });
    if (places == 0) return {};
    if (places > most_places) result += concat(" and ", places - most_places, " more places");
    return result;
}

}  // namespace pagewheel
