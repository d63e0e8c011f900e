// Values as literals of a programming language: what such notations have in common.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "parsing/arguments/argument_schema.hpp"

namespace pagewheel {

/// Lists stand in brackets and objects in braces. A notation derives from it and says how it writes
/// keys, texts and constants. Methods throw as ArgumentSchema's do.
class LiteralGrammar {
public:
    using Json = ArgumentSchema::Json;

    /// The schema must outlive it. The separator stands between items and between members.
    LiteralGrammar(ArgumentSchema& schema, std::string separator)
        : m_schema(schema), m_separator(std::move(separator)) {}
    virtual ~LiteralGrammar() = default;

    GrammarNode value(const Json& given, const std::string& place);
    GrammarNode object(const Json& schema, const std::string& place);

protected:
    /// Of an object's member, up to its value.
    virtual GrammarNode key(const std::string& name, const std::string& place) const = 0;
    virtual GrammarNode text(const Json& schema, const std::string& place) = 0;
    /// No array and no object.
    virtual GrammarNode constant(const Json& value, const std::string& place) const = 0;
    /// Without a schema that restricts it.
    virtual GrammarNode any_value(const std::string& place) const = 0;
    virtual GrammarNode any_object(const std::string& place) const = 0;

    ArgumentSchema& m_schema;
    const std::string m_separator;

private:
    GrammarNode value_of(const Json& schema, const std::string& place);
    GrammarNode typed(const Json& schema, const Json& type, const std::string& place);
    GrammarNode array(const Json& schema, const std::string& place);
    GrammarNode checked_constant(const Json& value, const std::string& place) const;

    size_t m_depth = 0;
};

}  // namespace pagewheel
