#include "parsing/arguments/argument_schema.hpp"

#include <algorithm>
#include <cctype>
#include <set>

#include "base/check.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel {
namespace {

using Json = nlohmann::ordered_json;

// Of one function, each as often as the grammar has it.
constexpr size_t max_values = 10'000;
constexpr size_t max_json_bytes = 1 << 20;

const std::set<std::string> annotations{
    "title",     "description", "default", "examples", "$comment",    "deprecated", "readOnly",
    "writeOnly", "$schema",     "$id",     "$defs",    "definitions", "strict",     "nullable"};

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

}  // namespace

void ArgumentSchema::refuse(const std::string& what, const std::string& place) const {
    throw InvalidArgument(concat("tools: ", m_whose, ": ", what, " at '", place,
                                 "' of the parameters cannot be kept in the family's notation"));
}

void ArgumentSchema::refuse_depth(const std::string& place) const {
    refuse("a schema that goes so deep, or in a circle,", place);
}

void ArgumentSchema::allow(const Json& schema, const std::string& place,
                           std::initializer_list<const char*> keywords) const {
    for (const auto& [key, value] : schema.items()) {
        const std::string& name = key;
        const bool is_known = annotations.count(name) != 0 ||
                              std::any_of(keywords.begin(), keywords.end(),
                                          [&](const char* each) { return name == each; });
        if (!is_known) refuse(concat("keyword '", name, "'"), place);
    }
}

void ArgumentSchema::check_word(const std::string& name, const std::string& place) const {
    const auto fits = [](unsigned char c) { return c >= 0x80 || std::isalnum(c) != 0 || c == '_'; };
    const bool is_word = std::all_of(name.begin(), name.end(), fits) && !name.empty();
    const bool is_digit_first =
        !name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) != 0;
    if (!is_word || is_digit_first) refuse(concat("the name '", name, "'"), place);
}

size_t ArgumentSchema::count_of(const Json& schema, const char* keyword, size_t absent,
                                const std::string& place) const {
    const auto found = schema.find(keyword);
    if (found == schema.end()) return absent;
    if (!found->is_number_unsigned()) refuse(concat("'", keyword, "' of ", *found), place);
    return found->get<size_t>();
}

std::vector<Json> ArgumentSchema::constants(const Json& schema) {
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

const Json& ArgumentSchema::resolved(const Json& given, const std::string& place) const {
    const Json* schema = &given;
    for (size_t hops = 0; schema->is_object() && schema->contains("$ref"); ++hops) {
        if (hops == max_depth) refuse_depth(place);
        allow(*schema, place, {"$ref"});
        const Json& reference = (*schema)["$ref"];
        const std::string text = reference.is_string() ? reference.get<std::string>() : "";
        const bool is_local = text == "#" || text.rfind("#/", 0) == 0;
        if (!is_local) refuse(concat("'$ref' to '", text, "'"), place);
        schema = pointed_to(text.substr(1));
        if (!schema) refuse(concat("'$ref' to '", text, "'"), place);
    }
    return *schema;
}

/// Null where nothing is there, or the pointer is none.
const Json* ArgumentSchema::pointed_to(const std::string& pointer) const {
    try {
        return &m_root.at(Json::json_pointer(pointer));
    } catch (const Json::exception&) {
        return nullptr;
    }
}

GrammarNode ArgumentSchema::json_value(Json schema) {
    std::string text = schema.dump();
    if (schema.is_object() && text.find("\"$ref\"") != std::string::npos) {
        for (const char* definitions : {"$defs", "definitions"})
            if (m_root.contains(definitions)) schema[definitions] = m_root[definitions];
        text = schema.dump();
    }
    m_num_json_bytes += text.size();
    if (m_num_json_bytes > max_json_bytes) refuse("a schema of over 1 MB", "");
    return StructuredOutputConfig::JSONSchema{text};
}

void ArgumentSchema::count_value(const std::string& place) {
    count_copies(m_num_values++, 1, place);
}

void ArgumentSchema::count_copies(size_t before, size_t times, const std::string& place) {
    m_num_values += (m_num_values - before) * (std::max<size_t>(times, 1) - 1);
    if (m_num_values > max_values)
        refuse(concat("a schema of over ", max_values, " values"), place);
}

GrammarNode ArgumentSchema::members(const Json& schema, const std::string& place,
                                    const std::string& separator, const PropertyWriter& write) {
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
        const bool is_required = std::find(required.begin(), required.end(), key) != required.end();
        all.push_back({write({key, value, concat(place, "/properties/", key)}), is_required});
    }
    // Where none is required, each may be the first, and has those behind it once more.
    if (required.empty()) count_copies(before, all.size(), place);
    return members_node(all, separator);
}

}  // namespace pagewheel
