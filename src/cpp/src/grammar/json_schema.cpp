#include "grammar/json_schema.hpp"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/check.hpp"
#include "grammar/schema_numbers.hpp"
#include "pagewheel/grammar_matcher.hpp"

namespace pagewheel {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

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

/// Forbids undeclared properties in the objects of a schema that says nothing about them.
class ObjectCloser {
public:
    explicit ObjectCloser(ordered_json& root) : m_root(root) {
        find_combined(root, false);
        if (!m_has_unknown_parts) close(root);
    }

    bool has_closed() const { return m_has_closed; }

private:
    static bool has_any(const ordered_json& schema, std::initializer_list<const char*> names) {
        return std::any_of(names.begin(), names.end(),
                           [&](const char* name) { return schema.contains(name); });
    }

    /// Calls visit for each schema directly within this one, and whether it is only defined there.
    template <class Visit>
    static void for_each_part(ordered_json& schema, const Visit& visit) {
        for (auto& [key, value] : schema.items()) {
            const bool is_definition = is_one_of(key, {"$defs", "definitions"});
            const bool is_map =
                is_definition || is_one_of(key, {"properties", "patternProperties",
                                                 "dependentSchemas", "dependencies"});
            const bool is_list = value.is_array() && is_one_of(key, {"allOf", "anyOf", "oneOf",
                                                                     "prefixItems", "items"});
            if (is_list || (is_map && value.is_object()))
                for (auto& each : value) visit(each, is_definition);
            else if (is_one_of(key, {"items", "additionalProperties", "additionalItems", "contains",
                                     "propertyNames", "unevaluatedItems", "unevaluatedProperties",
                                     "not", "if", "then", "else"}))
                visit(value, false);
        }
    }

    /// How many of its keywords say something of an object: with more than one, no part may be
    /// closed without the others.
    static size_t count_sources(const ordered_json& schema) {
        size_t count = has_any(schema, {"properties", "patternProperties", "additionalProperties",
                                        "unevaluatedProperties", "required", "minProperties",
                                        "dependentRequired", "propertyNames", "const", "enum"});
        for (const char* name : {"anyOf", "oneOf", "$ref"}) count += schema.contains(name);
        if (schema.contains("allOf")) count += schema["allOf"].size();
        return count + 2 * has_any(schema, {"not", "if", "then", "else", "dependentSchemas",
                                            "dependencies", "$dynamicRef", "$recursiveRef"});
    }

    /// Collects the schemas that may apply to a value together with others. Each is visited twice
    /// at most.
    void find_combined(ordered_json& schema, bool is_combined) {
        if (!schema.is_object()) return;
        if (!(is_combined ? m_combined : m_seen).insert(&schema).second) return;
        const bool combines = is_combined || count_sources(schema) > 1;
        for_each_part(schema, [&](ordered_json& part, bool is_definition) {
            find_combined(part, combines && !is_definition);
        });
        if (schema.contains("$ref") && combines) find_target(schema["$ref"]);
    }

    void find_target(const ordered_json& reference) {
        const std::string text = reference.is_string() ? reference.get<std::string>() : "";
        try {
            find_combined(m_root.at(ordered_json::json_pointer(text.substr(text[0] == '#'))), true);
        } catch (const ordered_json::exception&) {  // another document, or an anchor
            m_has_unknown_parts = true;
        }
    }

    void close(ordered_json& schema) {
        if (!schema.is_object()) return;
        for_each_part(schema, [&](ordered_json& part, bool) { close(part); });
        if (m_combined.count(&schema) > 0 || !may_be_closed(schema)) return;
        schema["additionalProperties"] = false;
        m_has_closed = true;
    }

    static bool may_be_closed(const ordered_json& schema) {
        const auto properties = schema.find("properties");
        if (properties == schema.end() || !properties->is_object()) return false;
        if (has_any(schema, {"additionalProperties", "unevaluatedProperties", "minProperties",
                             "dependentRequired", "const", "enum"}) ||
            count_sources(schema) > 1)
            return false;
        const ordered_json required = schema.value("required", ordered_json::array());
        return std::all_of(required.begin(), required.end(), [&](const ordered_json& name) {
            return name.is_string() && properties->contains(name.get<std::string>());
        });
    }

    ordered_json& m_root;
    std::set<const ordered_json*> m_seen, m_combined;
    bool m_has_unknown_parts = false;
    bool m_has_closed = false;
};

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

std::string prepare_json_schema(const std::string& schema, const GrammarLimits& limits,
                                bool is_open) {
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
    if (!is_open) {
        ordered_json closed = ordered_json::parse(schema);
        if (ObjectCloser(closed).has_closed())
            return prepare_json_schema(closed.dump(), limits, /*is_open=*/true);
    }
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
