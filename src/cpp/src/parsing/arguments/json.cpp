// Arguments as one JSON object.
#include "parsing/arguments/argument_grammars.hpp"

namespace pagewheel {
namespace {

/// An object with no other properties than those it names.
ArgumentSchema::Json closed(ArgumentSchema::Json schema) {
    for (const char* keyword : {"additionalProperties", "patternProperties", "allOf", "anyOf",
                                "oneOf", "$ref", "unevaluatedProperties"})
        if (schema.contains(keyword)) return schema;
    if (schema.contains("properties")) schema["additionalProperties"] = false;
    return schema;
}

}  // namespace

GrammarNode json_argument_grammar(ArgumentSchema& schema, const ArgumentNotation& /*notation*/) {
    return schema.json_value(closed(schema.root()));
}

}  // namespace pagewheel
