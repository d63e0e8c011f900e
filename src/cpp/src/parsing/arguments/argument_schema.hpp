// The schema of a function's arguments, as all notations read it.
#pragma once

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "parsing/grammar_parts.hpp"

namespace pagewheel {

/// Serves one grammar: it counts what was written, which is bounded. Places are JSON pointers.
/// Its methods throw InvalidArgument for what cannot be kept.
class ArgumentSchema {
public:
    using Json = nlohmann::ordered_json;

    static constexpr size_t max_depth = 30;

    struct Property {
        const std::string& name;
        const Json& schema;
        std::string place;
    };
    using PropertyWriter = std::function<GrammarNode(const Property&)>;

    /// Both must outlive it. `whose` names the family and the function in errors.
    ArgumentSchema(const Json& root, const std::string& whose) : m_root(root), m_whose(whose) {}

    const Json& root() const { return m_root; }
    [[noreturn]] void refuse(const std::string& what, const std::string& place) const;
    [[noreturn]] void refuse_depth(const std::string& place) const;
    /// Refuses keywords other than these and annotations.
    void allow(const Json& schema, const std::string& place,
               std::initializer_list<const char*> keywords) const;
    /// Refuses a name that is no word.
    void check_word(const std::string& name, const std::string& place) const;
    /// Of a keyword; `absent` where it is not there.
    size_t count_of(const Json& schema, const char* keyword, size_t absent,
                    const std::string& place) const;
    /// The values of enum or const that are of the schema's type.
    static std::vector<Json> constants(const Json& schema);
    /// What a $ref leads to.
    const Json& resolved(const Json& given, const std::string& place) const;

    /// A value in JSON.
    GrammarNode json_value(Json schema);
    /// The properties in their order, with the separator between those that are there.
    GrammarNode members(const Json& schema, const std::string& place, const std::string& separator,
                        const PropertyWriter& write);

    /// Values so far, each as often as it will stand in the grammar.
    size_t num_values() const { return m_num_values; }
    void count_value(const std::string& place);
    /// What was written since there were `before` values stands `times` times.
    void count_copies(size_t before, size_t times, const std::string& place);

private:
    const Json* pointed_to(const std::string& pointer) const;

    const Json& m_root;
    const std::string& m_whose;
    size_t m_num_values = 0;
    size_t m_num_json_bytes = 0;  // of parts that are JSON schemas
};

}  // namespace pagewheel
