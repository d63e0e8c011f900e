// JSON schemas: what is checked before llguidance reads them, and the places of what it refuses.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "grammar/grammar_limits.hpp"

namespace pagewheel {

/// The schema with our options for llguidance in it, unless it has some itself ("x-guidance"):
/// white space between tokens is bounded, so that a model cannot write it for ever. Throws
/// GrammarError for what is no JSON (with line and column), no schema, or beyond the limits.
/// `is_open`: objects may have properties that the schema does not declare, where it does not
/// mention additionalProperties. Otherwise they may not, unless allOf, $ref or conditions put the
/// object together of several schemas: closing one of them would forbid what the others declare.
std::string prepare_json_schema(const std::string& schema, const GrammarLimits& limits,
                                bool is_open = false);

/// A part of a schema as the text of a schema, with the definitions that it may refer to.
std::string schema_part(nlohmann::ordered_json part, const nlohmann::ordered_json& whole);

/// Whether a keyword restricts no value.
bool is_annotation(const std::string& keyword);

/// Where (JSON pointers) a schema has what llguidance refuses for sure. Empty where that is
/// unknown.
std::string refused_places(const std::string& schema);

// ---- Numbers of schemas, which llguidance reads as doubles (schema_numbers.cpp).

/// The schema as a value. A number that a double does not hold, such as 0.12345678901234567890, is
/// a binary value with the number's text. Throws GrammarError for what is no JSON.
nlohmann::json parse_schema(const std::string& text);

/// Throws GrammarError, with a JSON pointer, for a number that a grammar would change: one of
/// const, enum, multipleOf or a bound, wherever such a keyword stands, since a `$ref` may lead
/// anywhere.
void check_numbers(const nlohmann::json& schema);

/// The same for the schemas of tools, a JSON text, and numbers that parsing would change already.
void check_parsed_numbers(const std::string& tools);

/// The same for the schemas behind `%json` in a Lark grammar.
void check_lark_numbers(const std::string& lark);

/// Where a value stands in a schema: in its parent, under a key or an index. The parent and the key
/// must outlive it. The pointer is made only when it is asked for, because a schema may have a
/// million values under a key of a million characters.
struct SchemaPlace {
    const SchemaPlace* parent = nullptr;  // null: the whole schema
    const std::string* key = nullptr;     // null: `index` counts
    size_t index = 0;

    /// The JSON pointer.
    std::string pointer() const;
};

}  // namespace pagewheel
