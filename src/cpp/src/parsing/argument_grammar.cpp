#include "parsing/argument_grammar.hpp"

#include <algorithm>
#include <functional>
#include <initializer_list>

#include "base/check.hpp"
#include "grammar/json_schema.hpp"
#include "pagewheel/errors.hpp"
#include "parsing/bytes.hpp"

namespace pagewheel {
namespace {

using nlohmann::ordered_json;

constexpr size_t max_depth = 30;
constexpr size_t max_optional_items = 20;
// In one function, each as often as the grammar has it.
constexpr size_t max_values = 10'000;
constexpr size_t max_json_bytes = 1 << 20;

/// A member of an object, or an argument.
struct Member {
    GrammarNode node;
    bool is_required = false;
};

/// Members in their order with a separator between those that are there.
GrammarNode members_node(const std::vector<Member>& members, const std::string& separator) {
    const auto behind = [&](size_t begin) {
        std::vector<GrammarNode> nodes;
        for (size_t i = begin; i < members.size(); ++i) {
            const GrammarNode node = sequence_node({constant_node(separator), members[i].node});
            nodes.push_back(members[i].is_required ? node : optional_node(node));
        }
        return sequence_node(nodes);
    };
    const auto first = std::find_if(members.begin(), members.end(),
                                    [](const Member& each) { return each.is_required; });
    if (first == members.end()) {
        std::vector<GrammarNode> ways;
        for (size_t i = 0; i < members.size(); ++i)
            ways.push_back(sequence_node({members[i].node, behind(i + 1)}));
        return ways.empty() ? constant_node("") : optional_node(either_node(ways));
    }
    std::vector<GrammarNode> nodes;
    for (auto each = members.begin(); each != first; ++each)
        nodes.push_back(optional_node(sequence_node({each->node, constant_node(separator)})));
    nodes.push_back(first->node);
    nodes.push_back(behind(size_t(first - members.begin()) + 1));
    return sequence_node(nodes);
}

/// A character of a text in Python, and the same with the other quote.
constexpr const char* python_escape =
    R"re(\\(?:["'\\nrtbfav]|x[0-9a-fA-F]{2}|u(?:[0-9a-cefA-CEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2})))re";

std::string python_text(char quote, const std::string& count) {
    return concat(quote, "(?:[^", quote, R"(\\\x00-\x1f\x7f]|)", python_escape, ')', count, quote);
}

std::string python_texts(const std::string& count) {
    return concat("(?:", python_text('"', count), '|', python_text('\'', count), ')');
}

/// Any value in Python; `rule` is value or dict.
std::string python_lark(const std::string& rule) {
    return concat("start: ", rule, R"(
value: TEXT | NUMBER | "True" | "False" | "None" | list | dict
list: "[" (value (", " value)*)? "]"
dict: "{" (TEXT ": " value (", " TEXT ": " value)*)? "}"
NUMBER: /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/
TEXT: /)",
                  python_texts("*"), "/\n");
}

/// A text in Python, with either quote.
GrammarNode python_literal(const std::string& text) {
    const std::string json = nlohmann::ordered_json(text).dump();
    std::string single = "'";
    for (size_t i = 1; i + 1 < json.size(); ++i) {
        if (json[i] == '\\' && json[i + 1] == '"') continue;
        if (json[i] == '\\') single += json[i++];
        if (json[i] == '\'') single += '\\';
        single += json[i];
    }
    return StructuredOutputConfig::Choice{{json, single + "'"}};
}

/// Writes one function's arguments from their schema, and counts what was written, which is
/// bounded. Places are JSON pointers. Methods throw InvalidArgument for what cannot be kept.
class ArgumentGrammar {
public:
    using Json = ordered_json;

    /// All must outlive it. `whose` names the family and the function in errors.
    ArgumentGrammar(const ArgumentFormat& format, const Json& root, const std::string& whose)
        : m_format(format), m_root(root), m_whose(whose) {}

    GrammarNode arguments() {
        switch (m_format.kind) {
            case ArgumentFormat::Kind::JSON:
                return json_value(m_root);
            case ArgumentFormat::Kind::PYTHON:
                return members(m_root, "", ", ", [&](const Property& each) {
                    check_word(each.name, each.place);
                    return sequence_node(
                        {constant_node(each.name + "="), value(each.schema, each.place)});
                });
            case ArgumentFormat::Kind::QUOTED:
                return object(m_root, "");
            case ArgumentFormat::Kind::TAGGED:
                return members(m_root, "", "",
                               [&](const Property& each) { return tagged_argument(each); });
        }
        throw Error("unknown format of arguments");
    }

private:
    struct Property {
        const std::string& name;
        const Json& schema;
        std::string place;
    };
    using PropertyWriter = std::function<GrammarNode(const Property&)>;

    // ---- What all notations read.

    [[noreturn]] void refuse(const std::string& what, const std::string& place) const {
        throw InvalidArgument(
            concat("tools: ", m_whose, ": ", what, " at '", place,
                   "' of the parameters cannot be kept in the family's notation"));
    }

    [[noreturn]] void refuse_depth(const std::string& place) const {
        refuse("a schema that goes so deep, or in a circle,", place);
    }

    /// Refuses keywords other than these and annotations.
    void allow(const Json& schema, const std::string& place,
               std::initializer_list<const char*> keywords) const {
        for (const auto& [key, value] : schema.items()) {
            const std::string& name = key;
            const bool is_known =
                is_annotation(name) || std::any_of(keywords.begin(), keywords.end(),
                                                   [&](const char* each) { return name == each; });
            if (!is_known) refuse(concat("keyword '", name, "'"), place);
        }
    }

    void check_word(const std::string& name, const std::string& place) const {
        const bool is_word = !name.empty() && begins_name(name[0]) &&
                             std::all_of(name.begin(), name.end(), is_name_byte);
        if (!is_word) refuse(concat("the name '", name, "'"), place);
    }

    /// The count that a keyword gives; `absent` where it is not there.
    size_t count_of(const Json& schema, const char* keyword, size_t absent,
                    const std::string& place) const {
        const auto found = schema.find(keyword);
        if (found == schema.end()) return absent;
        if (!found->is_number_unsigned()) refuse(concat("'", keyword, "' of ", *found), place);
        return found->get<size_t>();
    }

    /// The values of enum or const that are of the schema's type.
    static std::vector<Json> constants(const Json& schema) {
        std::vector<Json> all;
        if (schema.contains("const")) all.push_back(schema["const"]);
        if (schema.contains("enum"))
            for (const Json& each : schema["enum"]) all.push_back(each);
        const Json type = schema.value("type", Json());
        const auto is_other = [&](const Json& each) {
            if (type == "string") return !each.is_string();
            if (type == "integer") return !each.is_number_integer();
            if (type == "number") return !each.is_number();
            if (type == "boolean") return !each.is_boolean();
            return false;
        };
        all.erase(std::remove_if(all.begin(), all.end(), is_other), all.end());
        return all;
    }

    /// What a $ref leads to.
    const Json& resolved(const Json& given, const std::string& place) const {
        const Json* schema = &given;
        for (size_t hops = 0; schema->is_object() && schema->contains("$ref"); ++hops) {
            if (hops == max_depth) refuse_depth(place);
            allow(*schema, place, {"$ref"});
            const Json& reference = (*schema)["$ref"];
            const std::string text = reference.is_string() ? reference.get<std::string>() : "";
            if (text != "#" && text.rfind("#/", 0) != 0)
                refuse(concat("'$ref' to '", text, "'"), place);
            try {
                schema = &m_root.at(Json::json_pointer(text.substr(1)));
            } catch (const Json::exception&) {
                refuse(concat("'$ref' to '", text, "'"), place);
            }
        }
        return *schema;
    }

    /// A value in JSON.
    GrammarNode json_value(const Json& schema) {
        const std::string text = schema_part(schema, m_root);
        m_num_json_bytes += text.size();
        if (m_num_json_bytes > max_json_bytes) refuse("a schema of over 1 MB", "");
        return StructuredOutputConfig::JSONSchema{text};
    }

    /// The properties in their order, with the separator between those that are there.
    GrammarNode members(const Json& schema, const std::string& place, const std::string& separator,
                        const PropertyWriter& write) {
        allow(schema, place, {"type", "properties", "required", "additionalProperties"});
        const Json none = Json::object();
        const Json& properties = schema.contains("properties") ? schema["properties"] : none;
        const Json required = schema.value("required", Json::array());
        for (const Json& name : required)
            if (!name.is_string() || !properties.contains(name.get<std::string>()))
                refuse("'required' of what is no property", place);
        std::vector<Member> all;
        const size_t before = m_num_values;
        for (const auto& [key, value] : properties.items()) {
            const bool is_required =
                std::find(required.begin(), required.end(), key) != required.end();
            all.push_back({write({key, value, concat(place, "/properties/", key)}), is_required});
        }
        // Where none is required, each may be the first, and has those behind it once more.
        if (required.empty()) count_copies(before, all.size(), place);
        return members_node(all, separator);
    }

    void count_value(const std::string& place) { count_copies(m_num_values++, 1, place); }

    /// What was written since there were `before` values stands `times` times.
    void count_copies(size_t before, size_t times, const std::string& place) {
        m_num_values += (m_num_values - before) * (std::max<size_t>(times, 1) - 1);
        if (m_num_values > max_values)
            refuse(concat("a schema of over ", max_values, " values"), place);
    }

    // ---- Values as literals: lists in brackets, objects in braces.

    bool is_python() const { return m_format.kind == ArgumentFormat::Kind::PYTHON; }
    std::string separator() const { return is_python() ? ", " : ","; }

    GrammarNode value(const Json& given, const std::string& place) {
        if (++m_depth > max_depth) refuse_depth(place);
        count_value(place);
        const GrammarNode node = value_of(resolved(given, place), place);
        --m_depth;
        return node;
    }

    GrammarNode object(const Json& schema, const std::string& place) {
        const bool is_closed = schema.value("additionalProperties", Json(true)) == Json(false);
        if (!schema.contains("properties") && !is_closed && !place.empty()) {
            allow(schema, place, {"type"});
            if (is_python()) return StructuredOutputConfig::Lark{python_lark("dict")};
            refuse("an object of any properties", place);
        }
        const auto write = [&](const Property& each) {
            return sequence_node({key(each.name, each.place), value(each.schema, each.place)});
        };
        return sequence_node(
            {constant_node("{"), members(schema, place, separator(), write), constant_node("}")});
    }

    /// An object's member, up to its value.
    GrammarNode key(const std::string& name, const std::string& place) const {
        if (is_python()) return sequence_node({python_literal(name), constant_node(": ")});
        check_word(name, place);
        return constant_node(name + ":");
    }

    GrammarNode text(const Json& schema, const std::string& place) {
        if (!is_python()) {
            allow(schema, place, {"type"});
            return tag_node(m_format.quote, StructuredOutputConfig::AnyText{}, m_format.quote);
        }
        if (schema.contains("pattern") || schema.contains("format")) return json_value(schema);
        allow(schema, place, {"type", "minLength", "maxLength"});
        std::string count = "*";
        if (schema.contains("minLength") || schema.contains("maxLength")) {
            const size_t least = count_of(schema, "minLength", 0, place);
            const std::string most =
                schema.contains("maxLength") ? concat(count_of(schema, "maxLength", 0, place)) : "";
            count = concat('{', least, ',', most, '}');
        }
        return StructuredOutputConfig::Regex{python_texts(count)};
    }

    GrammarNode constant(const Json& value, const std::string& place) const {
        if (value.is_structured()) refuse("'enum' or 'const' of an array or object", place);
        if (is_python()) {
            if (value.is_string()) return python_literal(value);
            if (value.is_null()) return constant_node("None");
            if (value.is_boolean()) return constant_node(value ? "True" : "False");
        }
        if (!value.is_string()) return constant_node(value.dump());
        const std::string text = value;
        if (text.find(m_format.quote) != std::string::npos)
            refuse(concat("the text '", text, "'"), place);
        return constant_node(m_format.quote + text + m_format.quote);
    }

    GrammarNode any_value(const std::string& place) const {
        if (!is_python()) refuse("a value of any type", place);
        return StructuredOutputConfig::Lark{python_lark("value")};
    }

    GrammarNode value_of(const Json& schema, const std::string& place) {
        if (schema.is_boolean() && schema.get<bool>()) return any_value(place);
        if (!schema.is_object()) refuse("this schema", place);
        std::vector<GrammarNode> ways;
        if (schema.contains("enum") || schema.contains("const")) {
            allow(schema, place, {"type", "enum", "const"});
            for (const Json& each : constants(schema)) ways.push_back(constant(each, place));
            if (ways.empty()) refuse("nothing", place);
            return either_node(ways);
        }
        if (schema.contains("anyOf")) {
            allow(schema, place, {"anyOf"});
            for (size_t i = 0; i < schema["anyOf"].size(); ++i)
                ways.push_back(value(schema["anyOf"][i], concat(place, "/anyOf/", i)));
            return either_node(ways);
        }
        const Json type = schema.value("type", Json());
        if (!type.is_array()) return typed(schema, type, place);
        for (const Json& each : type) {
            Json single = schema;
            single["type"] = each;
            ways.push_back(typed(single, each, place));
        }
        return either_node(ways);
    }

    GrammarNode typed(const Json& schema, const Json& type, const std::string& place) {
        if (type == "string") return text(schema, place);
        if (type == "integer" || type == "number") {
            allow(schema, place,
                  {"type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
                   "multipleOf"});
            return json_value(schema);
        }
        if (type == "boolean" || type == "null") {
            allow(schema, place, {"type"});
            if (type == "null") return constant(nullptr, place);
            return either_node({constant(true, place), constant(false, place)});
        }
        if (type == "array" || schema.contains("items")) return array(schema, place);
        if (type == "object" || schema.contains("properties")) return object(schema, place);
        allow(schema, place, {});
        return any_value(place);
    }

    GrammarNode array(const Json& schema, const std::string& place) {
        allow(schema, place, {"type", "items", "minItems", "maxItems"});
        const size_t before = m_num_values;
        const GrammarNode item = value(schema.value("items", Json(true)), place + "/items");
        const GrammarNode next = sequence_node({constant_node(separator()), item});
        const size_t least = count_of(schema, "minItems", 0, place);
        GrammarNode rest = any_number_node(next);
        if (schema.contains("maxItems")) {
            const size_t most = count_of(schema, "maxItems", 0, place);
            const size_t first = std::max<size_t>(least, 1);
            if (most < least || most > first + max_optional_items)
                refuse(concat("'maxItems' of ", most), place);
            if (most == 0) return constant_node("[]");
            count_copies(before, most, place);
            rest = constant_node("");
            for (size_t i = first; i < most; ++i) rest = optional_node(sequence_node({next, rest}));
        }
        if (least > max_depth) refuse(concat("'minItems' of ", least), place);
        count_copies(before, std::max<size_t>(least, 1) + 1, place);
        std::vector<GrammarNode> items{item};
        for (size_t i = 1; i < least; ++i) items.push_back(next);
        items.push_back(rest);
        const GrammarNode all = sequence_node(items);
        return sequence_node(
            {constant_node("["), least == 0 ? optional_node(all) : all, constant_node("]")});
    }

    // ---- A tag for each argument: texts as they are, other values as JSON.

    GrammarNode tagged_argument(const Property& given) {
        const auto& [key, schema, place] = given;
        if (key.find_first_of("<>\"\n\\") != std::string::npos)
            refuse(concat("the name '", key, "'"), place);
        const bool is_text = schema.is_object() && schema.value("type", Json()) == "string";
        const std::string line = m_format.trims_lines ? "\n" : "";
        const std::string before = m_format.value_open + line, end = m_format.value_close + "\n";
        const std::string& json_key_end =
            m_format.json_key_end.empty() ? m_format.text_key_end : m_format.json_key_end;
        if (!is_text)
            return tag_node(m_format.key_open + key + json_key_end + before,
                            json_value(without_tags(schema, place)), line + end);
        const std::string begin = m_format.key_open + key + m_format.text_key_end + before;
        if (schema.contains("enum") || schema.contains("const")) {
            allow(schema, place, {"type", "enum", "const"});
            StructuredOutputConfig::Choice choice;
            for (const Json& each : constants(schema))
                choice.values.push_back(each.get<std::string>());
            return tag_node(begin, choice, line + end);
        }
        allow(schema, place, {"type"});
        return sequence_node(
            {tag_node(begin, StructuredOutputConfig::AnyText{}, m_format.value_close),
             constant_node("\n")});
    }

    /// JSON in which no text has `</`, which could close the argument.
    Json without_tags(Json schema, const std::string& place) const {
        if (!schema.is_object()) refuse("a value of any type", place);
        const bool is_constant = schema.contains("enum") || schema.contains("const");
        if (is_constant && schema.dump().find(m_format.value_close) != std::string::npos)
            refuse(concat("a value with '", m_format.value_close, "'"), place);
        if (is_constant) return schema;
        allow(schema, place,
              {"type", "items", "minItems", "maxItems", "properties", "required",
               "additionalProperties", "anyOf", "minimum", "maximum", "exclusiveMinimum",
               "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "format"});
        const bool is_either = schema.contains("anyOf");
        if (is_either)
            for (Json& way : schema["anyOf"]) way = without_tags(way, place + "/anyOf");
        const Json type = schema.value("type", Json());
        if (type.is_null() && !is_either) refuse("a value of any type", place);
        const auto has_type = [&](const char* name) {
            return type == name ||
                   (type.is_array() && std::find(type.begin(), type.end(), name) != type.end());
        };
        if (has_type("string") && !schema.contains("format"))
            schema["pattern"] = "^([^<]|<+[^</])*<*$";
        if (has_type("array")) {
            if (!schema.contains("items")) refuse("a value of any type", place + "/items");
            schema["items"] = without_tags(schema["items"], place + "/items");
        }
        if (has_type("object")) {
            if (!schema.contains("properties")) refuse("an object of any properties", place);
            schema["additionalProperties"] = false;
            for (auto& [key, value] : schema["properties"].items())
                value = without_tags(value, concat(place, "/properties/", key));
        }
        return schema;
    }

    const ArgumentFormat& m_format;
    const Json& m_root;
    const std::string& m_whose;
    size_t m_depth = 0;
    size_t m_num_values = 0;      // each as often as it will stand in the grammar
    size_t m_num_json_bytes = 0;  // of parts that are JSON schemas
};

}  // namespace

GrammarNode argument_grammar(const ArgumentFormat& format, const ordered_json& schema,
                             const std::string& whose) {
    ordered_json root = schema;
    if (root.is_null()) root = {{"type", "object"}, {"properties", ordered_json::object()}};
    check_argument(root.is_object(), "tools: ", whose, ": parameters must be a JSON schema of an ",
                   "object, got ", root.dump());
    if (!root.contains("type")) root["type"] = "object";
    check_argument(root["type"] == "object", "tools: ", whose,
                   ": parameters must be of type object, got ", root["type"].dump());
    if (!root.contains("properties") && root.size() == 1)
        root["properties"] = ordered_json::object();
    try {
        return ArgumentGrammar(format, root, whose).arguments();
    } catch (const nlohmann::json::exception& error) {  // a keyword of another type than it has
        throw InvalidArgument(
            concat("tools: ", whose, ": parameters are no JSON schema: ", error.what()));
    }
}

}  // namespace pagewheel
