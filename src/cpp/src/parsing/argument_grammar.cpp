#include "parsing/argument_grammar.hpp"

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <set>

#include "base/check.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel {
namespace {

using nlohmann::ordered_json;
using Config = StructuredOutputConfig;
using Kind = ArgumentNotation::Kind;

constexpr size_t max_depth = 30;
constexpr size_t max_optional_items = 20;
// Of one function, each as often as the grammar has it.
constexpr size_t max_values = 10'000;
constexpr size_t max_json_bytes = 1 << 20;

const std::set<std::string> annotations{
    "title",     "description", "default", "examples", "$comment",    "deprecated", "readOnly",
    "writeOnly", "$schema",     "$id",     "$defs",    "definitions", "strict",     "nullable"};

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

/// Writes one function's arguments.
class ArgumentGrammar {
public:
    ArgumentGrammar(const ArgumentNotation& notation, const ordered_json& root,
                    const std::string& whose)
        : m_notation(notation), m_root(root), m_whose(whose) {}

    GrammarNode arguments() {
        switch (m_notation.kind) {
            case Kind::JSON:
                return json(closed(m_root));
            case Kind::PYTHON:
                return members_node(members(m_root, "", &ArgumentGrammar::python_argument), ", ");
            case Kind::QUOTED:
                return object(m_root, "");
            case Kind::TAGGED:
                return members_node(members(m_root, "", &ArgumentGrammar::tagged_argument), "");
        }
        throw Error("unknown notation");
    }

private:
    using MemberWriter = GrammarNode (ArgumentGrammar::*)(const std::string& key,
                                                          const ordered_json& schema,
                                                          const std::string& place);

    [[noreturn]] void refuse(const std::string& what, const std::string& place) const {
        throw InvalidArgument(
            concat("tools: ", m_whose, ": ", what, " at '", place,
                   "' of the parameters cannot be kept in the family's notation"));
    }

    /// Throws for keywords other than these and annotations.
    void allow(const ordered_json& schema, const std::string& place,
               std::initializer_list<const char*> keywords) const {
        for (const auto& [key, value] : schema.items()) {
            const std::string& name = key;
            const bool is_known = annotations.count(name) != 0 ||
                                  std::any_of(keywords.begin(), keywords.end(),
                                              [&](const char* each) { return name == each; });
            if (!is_known) refuse(concat("keyword '", name, "'"), place);
        }
    }

    /// An object with no other properties than those it names.
    static ordered_json closed(ordered_json schema) {
        for (const char* keyword : {"additionalProperties", "patternProperties", "allOf", "anyOf",
                                    "oneOf", "$ref", "unevaluatedProperties"})
            if (schema.contains(keyword)) return schema;
        if (schema.contains("properties")) schema["additionalProperties"] = false;
        return schema;
    }

    GrammarNode json(ordered_json schema) {
        std::string text = schema.dump();
        if (schema.is_object() && text.find("\"$ref\"") != std::string::npos) {
            for (const char* definitions : {"$defs", "definitions"})
                if (m_root.contains(definitions)) schema[definitions] = m_root[definitions];
            text = schema.dump();
        }
        m_num_json_bytes += text.size();
        if (m_num_json_bytes > max_json_bytes) refuse("a schema of over 1 MB", "");
        return Config::JSONSchema{text};
    }

    /// What was written since there were `before` values stands `times` times.
    void count_copies(size_t before, size_t times, const std::string& place) {
        m_num_values += (m_num_values - before) * (std::max<size_t>(times, 1) - 1);
        if (m_num_values > max_values)
            refuse(concat("a schema of over ", max_values, " values"), place);
    }

    /// Of a keyword; `absent` where it is not there.
    size_t count_of(const ordered_json& schema, const char* keyword, size_t absent,
                    const std::string& place) const {
        const auto found = schema.find(keyword);
        if (found == schema.end()) return absent;
        if (!found->is_number_unsigned()) refuse(concat("'", keyword, "' of ", *found), place);
        return found->get<size_t>();
    }

    std::vector<Member> members(const ordered_json& schema, const std::string& place,
                                MemberWriter write) {
        allow(schema, place, {"type", "properties", "required", "additionalProperties"});
        const ordered_json none = ordered_json::object();
        const ordered_json& properties =
            schema.contains("properties") ? schema["properties"] : none;
        const ordered_json required = schema.value("required", ordered_json::array());
        for (const ordered_json& name : required)
            if (!name.is_string() || !properties.contains(name.get<std::string>()))
                refuse("'required' of what is no property", place);
        std::vector<Member> all;
        const size_t before = m_num_values;
        for (const auto& [key, value] : properties.items()) {
            const bool is_required =
                std::find(required.begin(), required.end(), key) != required.end();
            const std::string inner = concat(place, "/properties/", key);
            all.push_back({(this->*write)(key, value, inner), is_required});
        }
        // Where none is required, each may be the first, and has those behind it once more.
        if (required.empty()) count_copies(before, all.size(), place);
        return all;
    }

    void check_key(const std::string& key, const std::string& place) const {
        const auto fits = [](unsigned char c) {
            return c >= 0x80 || std::isalnum(c) != 0 || c == '_';
        };
        const bool is_word = std::all_of(key.begin(), key.end(), fits) && !key.empty();
        const bool is_digit_first =
            !key.empty() && std::isdigit(static_cast<unsigned char>(key[0])) != 0;
        if (!is_word || is_digit_first) refuse(concat("the name '", key, "'"), place);
    }

    GrammarNode python_argument(const std::string& key, const ordered_json& schema,
                                const std::string& place) {
        check_key(key, place);
        return sequence_node({constant_node(key + "="), value(schema, place)});
    }

    GrammarNode quoted_member(const std::string& key, const ordered_json& schema,
                              const std::string& place) {
        check_key(key, place);
        return sequence_node({constant_node(key + ":"), value(schema, place)});
    }

    GrammarNode python_member(const std::string& key, const ordered_json& schema,
                              const std::string& place) {
        return sequence_node({literal(key), constant_node(": "), value(schema, place)});
    }

    GrammarNode tagged_argument(const std::string& key, const ordered_json& schema,
                                const std::string& place) {
        if (key.find_first_of("<>\"\n\\") != std::string::npos)
            refuse(concat("the name '", key, "'"), place);
        const bool is_text = schema.is_object() && schema.value("type", ordered_json()) == "string";
        const std::string end = m_notation.value_close + m_notation.after_value;
        if (!is_text)
            return tag_node(m_notation.key_open + key + m_notation.json_key_end,
                            json(without_tags(schema, place)), m_notation.json_value_end + end);
        const std::string begin = m_notation.key_open + key + m_notation.text_key_end;
        if (schema.contains("enum") || schema.contains("const")) {
            allow(schema, place, {"type", "enum", "const"});
            Config::Choice choice;
            for (const ordered_json& each : constants(schema))
                choice.values.push_back(each.get<std::string>());
            return tag_node(begin, choice, m_notation.json_value_end + end);
        }
        allow(schema, place, {"type"});
        return sequence_node({tag_node(begin, Config::AnyText{}, m_notation.value_close),
                              constant_node(m_notation.after_value)});
    }

    /// JSON in which no text has `</`, which could close the argument.
    ordered_json without_tags(ordered_json schema, const std::string& place) const {
        if (!schema.is_object()) refuse("a value of any type", place);
        const bool is_constant = schema.contains("enum") || schema.contains("const");
        if (is_constant && schema.dump().find(m_notation.value_close) != std::string::npos)
            refuse(concat("a value with '", m_notation.value_close, "'"), place);
        if (is_constant) return schema;
        allow(schema, place,
              {"type", "items", "minItems", "maxItems", "properties", "required",
               "additionalProperties", "anyOf", "minimum", "maximum", "exclusiveMinimum",
               "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "format"});
        const bool is_either = schema.contains("anyOf");
        if (is_either)
            for (ordered_json& way : schema["anyOf"]) way = without_tags(way, place + "/anyOf");
        const ordered_json type = schema.value("type", ordered_json());
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

    /// The values of enum or const that are of the schema's type.
    static std::vector<ordered_json> constants(const ordered_json& schema) {
        std::vector<ordered_json> all;
        if (schema.contains("const")) all.push_back(schema["const"]);
        if (schema.contains("enum"))
            for (const ordered_json& each : schema["enum"]) all.push_back(each);
        const ordered_json type = schema.value("type", ordered_json());
        const auto is_other = [&](const ordered_json& each) {
            if (type == "string") return !each.is_string();
            if (type == "integer") return !each.is_number_integer();
            if (type == "number") return !each.is_number();
            if (type == "boolean") return !each.is_boolean();
            return false;
        };
        all.erase(std::remove_if(all.begin(), all.end(), is_other), all.end());
        return all;
    }

    const ordered_json& resolved(const ordered_json& given, const std::string& place) const {
        const ordered_json* schema = &given;
        for (size_t hops = 0; schema->is_object() && schema->contains("$ref"); ++hops) {
            if (hops == max_depth) refuse_depth(place);
            allow(*schema, place, {"$ref"});
            const ordered_json& reference = (*schema)["$ref"];
            const std::string text = reference.is_string() ? reference.get<std::string>() : "";
            const bool is_local = text == "#" || text.rfind("#/", 0) == 0;
            if (!is_local) refuse(concat("'$ref' to '", text, "'"), place);
            schema = pointed_to(text.substr(1));
            if (!schema) refuse(concat("'$ref' to '", text, "'"), place);
        }
        return *schema;
    }

    /// Null where nothing is there, or the pointer is none.
    const ordered_json* pointed_to(const std::string& pointer) const {
        try {
            return &m_root.at(ordered_json::json_pointer(pointer));
        } catch (const ordered_json::exception&) {
            return nullptr;
        }
    }

    [[noreturn]] void refuse_depth(const std::string& place) const {
        refuse("a schema that goes so deep, or in a circle,", place);
    }

    GrammarNode value(const ordered_json& given, const std::string& place) {
        if (++m_depth > max_depth) refuse_depth(place);
        count_copies(m_num_values++, 1, place);
        const GrammarNode node = value_of(resolved(given, place), place);
        --m_depth;
        return node;
    }

    GrammarNode value_of(const ordered_json& schema, const std::string& place) {
        if (schema.is_boolean() && schema.get<bool>()) return any(place);
        if (!schema.is_object()) refuse("this schema", place);
        std::vector<GrammarNode> ways;
        if (schema.contains("enum") || schema.contains("const")) {
            allow(schema, place, {"type", "enum", "const"});
            for (const ordered_json& each : constants(schema))
                ways.push_back(constant(each, place));
            if (ways.empty()) refuse("nothing", place);
            return either_node(ways);
        }
        if (schema.contains("anyOf")) {
            allow(schema, place, {"anyOf"});
            for (size_t i = 0; i < schema["anyOf"].size(); ++i)
                ways.push_back(value(schema["anyOf"][i], concat(place, "/anyOf/", i)));
            return either_node(ways);
        }
        const ordered_json type = schema.value("type", ordered_json());
        if (!type.is_array()) return typed(schema, type, place);
        for (const ordered_json& each : type) {
            ordered_json single = schema;
            single["type"] = each;
            ways.push_back(typed(single, each, place));
        }
        return either_node(ways);
    }

    GrammarNode typed(const ordered_json& schema, const ordered_json& type,
                      const std::string& place) {
        if (type == "string") return text(schema, place);
        if (type == "integer" || type == "number") {
            allow(schema, place,
                  {"type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
                   "multipleOf"});
            return json(schema);
        }
        if (type == "boolean" || type == "null") {
            allow(schema, place, {"type"});
            if (type == "null") return constant(nullptr, place);
            return either_node({constant(true, place), constant(false, place)});
        }
        if (type == "array" || schema.contains("items")) return array(schema, place);
        if (type == "object" || schema.contains("properties")) return object(schema, place);
        allow(schema, place, {});
        return any(place);
    }

    GrammarNode any(const std::string& place) const {
        if (m_notation.kind != Kind::PYTHON) refuse("a value of any type", place);
        return Config::Lark{python_lark("value")};
    }

    GrammarNode text(const ordered_json& schema, const std::string& place) {
        if (m_notation.kind == Kind::QUOTED) {
            allow(schema, place, {"type"});
            return tag_node(m_notation.quote, Config::AnyText{}, m_notation.quote);
        }
        if (schema.contains("pattern") || schema.contains("format")) return json(schema);
        allow(schema, place, {"type", "minLength", "maxLength"});
        std::string count = "*";
        if (schema.contains("minLength") || schema.contains("maxLength")) {
            const size_t least = count_of(schema, "minLength", 0, place);
            const std::string most =
                schema.contains("maxLength") ? concat(count_of(schema, "maxLength", 0, place)) : "";
            count = concat('{', least, ',', most, '}');
        }
        return Config::Regex{python_texts(count)};
    }

    GrammarNode array(const ordered_json& schema, const std::string& place) {
        allow(schema, place, {"type", "items", "minItems", "maxItems"});
        const std::string separator = m_notation.kind == Kind::PYTHON ? ", " : ",";
        const size_t before = m_num_values;
        const GrammarNode item = value(schema.value("items", ordered_json(true)), place + "/items");
        const GrammarNode next = sequence_node({constant_node(separator), item});
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

    GrammarNode object(const ordered_json& schema, const std::string& place) {
        const bool is_python = m_notation.kind == Kind::PYTHON;
        const bool is_closed =
            schema.value("additionalProperties", ordered_json(true)) == ordered_json(false);
        if (!schema.contains("properties") && !is_closed && !place.empty()) {
            allow(schema, place, {"type"});
            return any_object(place);
        }
        const MemberWriter write =
            is_python ? &ArgumentGrammar::python_member : &ArgumentGrammar::quoted_member;
        return sequence_node({constant_node("{"),
                              members_node(members(schema, place, write), is_python ? ", " : ","),
                              constant_node("}")});
    }

    GrammarNode any_object(const std::string& place) const {
        if (m_notation.kind != Kind::PYTHON) refuse("an object of any properties", place);
        return Config::Lark{python_lark("dict")};
    }

    /// A text in Python, with either quote.
    static GrammarNode literal(const std::string& text) {
        const std::string json = ordered_json(text).dump();
        std::string single = "'";
        for (size_t i = 1; i + 1 < json.size(); ++i) {
            if (json[i] == '\\' && json[i + 1] == '"') continue;
            if (json[i] == '\\') single += json[i++];
            if (json[i] == '\'') single += '\\';
            single += json[i];
        }
        return Config::Choice{{json, single + "'"}};
    }

    GrammarNode constant(const ordered_json& value, const std::string& place) const {
        const bool is_python = m_notation.kind == Kind::PYTHON;
        if (value.is_string()) {
            const std::string text = value;
            if (is_python) return literal(text);
            if (text.find(m_notation.quote) != std::string::npos)
                refuse(concat("the text '", text, "'"), place);
            return constant_node(m_notation.quote + text + m_notation.quote);
        }
        if (value.is_structured()) refuse("'enum' or 'const' of an array or object", place);
        if (is_python && value.is_null()) return constant_node("None");
        if (is_python && value.is_boolean()) return constant_node(value ? "True" : "False");
        return constant_node(value.dump());
    }

    const ArgumentNotation& m_notation;
    const ordered_json& m_root;
    const std::string& m_whose;
    size_t m_depth = 0;
    size_t m_num_values = 0;      // each as often as it will stand in the grammar
    size_t m_num_json_bytes = 0;  // of parts that are JSON schemas
};

}  // namespace

GrammarNode argument_grammar(const ArgumentNotation& notation, const ordered_json& schema,
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
        return ArgumentGrammar(notation, root, whose).arguments();
    } catch (const nlohmann::json::exception& error) {  // a keyword of another type than it has
        throw InvalidArgument(
            concat("tools: ", whose, ": parameters are no JSON schema: ", error.what()));
    }
}

}  // namespace pagewheel
