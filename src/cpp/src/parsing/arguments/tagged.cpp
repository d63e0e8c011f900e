// Arguments in tags, one for each: texts as they are, other values as JSON.
#include <algorithm>

#include "base/check.hpp"
#include "parsing/arguments/argument_grammars.hpp"

namespace pagewheel {
namespace {

class TaggedGrammar {
public:
    using Json = ArgumentSchema::Json;

    TaggedGrammar(ArgumentSchema& schema, const ArgumentNotation& notation)
        : m_schema(schema), m_notation(notation) {}

    GrammarNode arguments() {
        return m_schema.members(m_schema.root(), "", "", [&](const ArgumentSchema::Property& each) {
            return argument(each);
        });
    }

private:
    GrammarNode argument(const ArgumentSchema::Property& given) {
        const auto& [key, schema, place] = given;
        if (key.find_first_of("<>\"\n\\") != std::string::npos)
            m_schema.refuse(concat("the name '", key, "'"), place);
        const bool is_text = schema.is_object() && schema.value("type", Json()) == "string";
        const std::string end = m_notation.value_close + m_notation.after_value;
        if (!is_text)
            return tag_node(m_notation.key_open + key + m_notation.json_key_end,
                            m_schema.json_value(without_tags(schema, place)),
                            m_notation.json_value_end + end);
        const std::string begin = m_notation.key_open + key + m_notation.text_key_end;
        if (schema.contains("enum") || schema.contains("const")) {
            m_schema.allow(schema, place, {"type", "enum", "const"});
            StructuredOutputConfig::Choice choice;
            for (const Json& each : ArgumentSchema::constants(schema))
                choice.values.push_back(each.get<std::string>());
            return tag_node(begin, choice, m_notation.json_value_end + end);
        }
        m_schema.allow(schema, place, {"type"});
        return sequence_node(
            {tag_node(begin, StructuredOutputConfig::AnyText{}, m_notation.value_close),
             constant_node(m_notation.after_value)});
    }

    /// JSON in which no text has `</`, which could close the argument.
    Json without_tags(Json schema, const std::string& place) const {
        if (!schema.is_object()) m_schema.refuse("a value of any type", place);
        const bool is_constant = schema.contains("enum") || schema.contains("const");
        if (is_constant && schema.dump().find(m_notation.value_close) != std::string::npos)
            m_schema.refuse(concat("a value with '", m_notation.value_close, "'"), place);
        if (is_constant) return schema;
        m_schema.allow(schema, place,
                       {"type", "items", "minItems", "maxItems", "properties", "required",
                        "additionalProperties", "anyOf", "minimum", "maximum", "exclusiveMinimum",
                        "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "format"});
        const bool is_either = schema.contains("anyOf");
        if (is_either)
            for (Json& way : schema["anyOf"]) way = without_tags(way, place + "/anyOf");
        const Json type = schema.value("type", Json());
        if (type.is_null() && !is_either) m_schema.refuse("a value of any type", place);
        const auto has_type = [&](const char* name) {
            return type == name ||
                   (type.is_array() && std::find(type.begin(), type.end(), name) != type.end());
        };
        if (has_type("string") && !schema.contains("format"))
            schema["pattern"] = "^([^<]|<+[^</])*<*$";
        if (has_type("array")) {
            if (!schema.contains("items")) m_schema.refuse("a value of any type", place + "/items");
            schema["items"] = without_tags(schema["items"], place + "/items");
        }
        if (has_type("object")) {
            if (!schema.contains("properties"))
                m_schema.refuse("an object of any properties", place);
            schema["additionalProperties"] = false;
            for (auto& [key, value] : schema["properties"].items())
                value = without_tags(value, concat(place, "/properties/", key));
        }
        return schema;
    }

    ArgumentSchema& m_schema;
    const ArgumentNotation& m_notation;
};

}  // namespace

GrammarNode tagged_argument_grammar(ArgumentSchema& schema, const ArgumentNotation& notation) {
    return TaggedGrammar(schema, notation).arguments();
}

}  // namespace pagewheel
