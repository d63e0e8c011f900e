// Numbers of JSON schemas, which llguidance reads as doubles.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace pagewheel {

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

/// A key as a part of a JSON pointer.
std::string pointer_part(std::string key);

}  // namespace pagewheel
