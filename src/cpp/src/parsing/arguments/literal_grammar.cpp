#include "parsing/arguments/literal_grammar.hpp"

#include <algorithm>
#include <vector>

#include "base/check.hpp"

namespace pagewheel {
namespace {

constexpr size_t max_optional_items = 20;

}  // namespace

GrammarNode LiteralGrammar::value(const Json& given, const std::string& place) {
    if (++m_depth > ArgumentSchema::max_depth) m_schema.refuse_depth(place);
    m_schema.count_value(place);
    const GrammarNode node = value_of(m_schema.resolved(given, place), place);
    --m_depth;
    return node;
}

GrammarNode LiteralGrammar::value_of(const Json& schema, const std::string& place) {
    if (schema.is_boolean() && schema.get<bool>()) return any_value(place);
    if (!schema.is_object()) m_schema.refuse("this schema", place);
    std::vector<GrammarNode> ways;
    if (schema.contains("enum") || schema.contains("const")) {
        m_schema.allow(schema, place, {"type", "enum", "const"});
        for (const Json& each : ArgumentSchema::constants(schema))
            ways.push_back(checked_constant(each, place));
        if (ways.empty()) m_schema.refuse("nothing", place);
        return either_node(ways);
    }
    if (schema.contains("anyOf")) {
        m_schema.allow(schema, place, {"anyOf"});
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

GrammarNode LiteralGrammar::typed(const Json& schema, const Json& type, const std::string& place) {
    if (type == "string") return text(schema, place);
    if (type == "integer" || type == "number") {
        m_schema.allow(
            schema, place,
            {"type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"});
        return m_schema.json_value(schema);
    }
    if (type == "boolean" || type == "null") {
        m_schema.allow(schema, place, {"type"});
        if (type == "null") return constant(nullptr, place);
        return either_node({constant(true, place), constant(false, place)});
    }
    if (type == "array" || schema.contains("items")) return array(schema, place);
    if (type == "object" || schema.contains("properties")) return object(schema, place);
    m_schema.allow(schema, place, {});
    return any_value(place);
}

GrammarNode LiteralGrammar::array(const Json& schema, const std::string& place) {
    m_schema.allow(schema, place, {"type", "items", "minItems", "maxItems"});
    const size_t before = m_schema.num_values();
    const GrammarNode item = value(schema.value("items", Json(true)), place + "/items");
    const GrammarNode next = sequence_node({constant_node(m_separator), item});
    const size_t least = m_schema.count_of(schema, "minItems", 0, place);
    GrammarNode rest = any_number_node(next);
    if (schema.contains("maxItems")) {
        const size_t most = m_schema.count_of(schema, "maxItems", 0, place);
        const size_t first = std::max<size_t>(least, 1);
        if (most < least || most > first + max_optional_items)
            m_schema.refuse(concat("'maxItems' of ", most), place);
        if (most == 0) return constant_node("[]");
        m_schema.count_copies(before, most, place);
        rest = constant_node("");
        for (size_t i = first; i < most; ++i) rest = optional_node(sequence_node({next, rest}));
    }
    if (least > ArgumentSchema::max_depth) m_schema.refuse(concat("'minItems' of ", least), place);
    m_schema.count_copies(before, std::max<size_t>(least, 1) + 1, place);
    std::vector<GrammarNode> items{item};
    for (size_t i = 1; i < least; ++i) items.push_back(next);
    items.push_back(rest);
    const GrammarNode all = sequence_node(items);
    return sequence_node(
        {constant_node("["), least == 0 ? optional_node(all) : all, constant_node("]")});
}

GrammarNode LiteralGrammar::object(const Json& schema, const std::string& place) {
    const bool is_closed = schema.value("additionalProperties", Json(true)) == Json(false);
    if (!schema.contains("properties") && !is_closed && !place.empty()) {
        m_schema.allow(schema, place, {"type"});
        return any_object(place);
    }
    const auto write = [&](const ArgumentSchema::Property& each) {
        return sequence_node({key(each.name, each.place), value(each.schema, each.place)});
    };
    return sequence_node({constant_node("{"), m_schema.members(schema, place, m_separator, write),
                          constant_node("}")});
}

GrammarNode LiteralGrammar::checked_constant(const Json& value, const std::string& place) const {
    if (value.is_structured()) m_schema.refuse("'enum' or 'const' of an array or object", place);
    return constant(value, place);
}

}  // namespace pagewheel
