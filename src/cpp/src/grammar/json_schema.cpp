#include "grammar/json_schema.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/check.hpp"
#include "pagewheel/grammar_matcher.hpp"

namespace pagewheel {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// Enough for lines that are indented by 31 times four spaces.
constexpr const char* own_options = R"("x-guidance":{"whitespace_pattern":"[ \\t\\r\\n]{1,128}"})";

bool is_one_of(const std::string& name, std::initializer_list<const char*> names) {
    return std::any_of(names.begin(), names.end(), [&](const char* each) { return name == each; });
}

bool is_definition(const std::string& keyword) {
    return is_one_of(keyword, {"$defs", "definitions"});
}

/// Calls visit(part, its place, the keyword that it stands under) for each schema directly within
/// this one.
template <class Json, class Visit>
void for_each_part(Json& schema, const SchemaPlace& place, const Visit& visit) {
    for (auto& [key, value] : schema.items()) {
        const std::string& keyword = key;
        const SchemaPlace inner{&place, &keyword};
        const bool is_map =
            is_definition(keyword) || is_one_of(keyword, {"properties", "patternProperties",
                                                          "dependentSchemas", "dependencies"});
        const bool is_list = value.is_array() && is_one_of(keyword, {"allOf", "anyOf", "oneOf",
                                                                     "prefixItems", "items"});
        if (is_map && value.is_object()) {
            for (auto& [member, part] : value.items()) {
                const std::string& name = member;
                visit(part, SchemaPlace{&inner, &name}, keyword);
            }
        } else if (is_list) {
            for (size_t i = 0; i < value.size(); ++i)
                visit(value[i], SchemaPlace{&inner, nullptr, i}, keyword);
        } else if (is_one_of(keyword, {"items", "additionalProperties", "additionalItems",
                                       "contains", "propertyNames", "unevaluatedItems",
                                       "unevaluatedProperties", "not", "if", "then", "else"})) {
            visit(value, inner, keyword);
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
        for_each_part(schema, {}, [&](ordered_json& part, const SchemaPlace&, const auto& keyword) {
            find_combined(part, combines && !is_definition(keyword));
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
        for_each_part(schema, {}, [&](ordered_json& part, const auto&...) { close(part); });
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

/// Whether llguidance (1.9) reads the keyword, or leaves it out without a word.
bool is_known(const std::string& keyword) {
    return is_definition(keyword) ||
           is_one_of(keyword, {"type", "const", "enum", "anyOf", "allOf", "x-guidance"}) ||
           is_one_of(keyword,
                     {"items", "additionalItems", "prefixItems", "minItems", "maxItems"}) ||
           is_one_of(keyword, {"properties", "additionalProperties", "patternProperties",
                               "required", "minProperties", "maxProperties"}) ||
           is_one_of(keyword, {"minLength", "maxLength", "pattern"}) ||
           is_one_of(keyword, {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
                               "multipleOf"}) ||
           is_one_of(keyword, {"$anchor", "$schema", "$id", "id", "$comment", "title",
                               "description", "default", "readOnly", "writeOnly", "examples",
                               "contentMediaType", "contentEncoding"});
}

/// Whether llguidance (1.9) refuses the keyword of a schema, whatever stands beside it.
bool is_refused(const std::string& keyword, const json& value, const json& root) {
    if (keyword == "oneOf") return true;  // its options may overlap
    if (keyword == "format")
        return !value.is_string() ||
               !is_one_of(value, {"date-time", "time", "date", "duration", "email", "hostname",
                                  "ipv4", "ipv6", "uuid", "uri", "unknown"});
    if (keyword == "$ref") {
        const std::string text = value.is_string() ? value.get<std::string>() : "";
        try {
            return text.empty() || text[0] != '#' ||
                   !root.contains(json::json_pointer(text.substr(1)));
        } catch (const json::exception&) {  // an anchor
            return false;
        }
    }
    return !is_known(keyword);
}

void find_refused(const json& schema, const SchemaPlace& place, const json& root,
                  std::vector<std::string>& places) {
    if (!schema.is_object()) return;
    for (const auto& [key, value] : schema.items()) {
        const std::string& keyword = key;
        if (is_refused(keyword, value, root))
            places.push_back(SchemaPlace{&place, &keyword}.pointer());
    }
    for_each_part(schema, place, [&](const json& part, const SchemaPlace& inner, const auto&) {
        find_refused(part, inner, root, places);
    });
}

}  // namespace

std::string prepare_json_schema(const std::string& schema, const GrammarLimits& limits,
                                bool is_open) {
    if (schema.size() > limits.text_bytes)
        throw GrammarError(
            concat("a JSON schema of ", schema.size(), " bytes; allowed are ", limits.text_bytes));
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

std::string schema_part(ordered_json part, const ordered_json& whole) {
    if (part.is_object() && part.dump().find("\"$ref\"") != std::string::npos)
        for (const char* definitions : {"$defs", "definitions"})
            if (whole.contains(definitions)) part[definitions] = whole[definitions];
    return part.dump();
}

bool is_annotation(const std::string& keyword) {
    return is_definition(keyword) ||
           is_one_of(keyword,
                     {"title", "description", "default", "examples", "$comment", "deprecated",
                      "readOnly", "writeOnly", "$schema", "$id", "strict", "nullable"});
}

std::string refused_places(const std::string& schema) {
    constexpr size_t most_places = 5;
    const json root = parse_schema(schema);
    std::vector<std::string> places;
    find_refused(root, {}, root, places);
    std::string result;
    for (size_t i = 0; i < std::min(places.size(), most_places); ++i)
        result += (i == 0 ? "" : ", ") + places[i];
    if (places.size() > most_places)
        result += concat(" and ", places.size() - most_places, " more places");
    return result;
}

}  // namespace pagewheel
