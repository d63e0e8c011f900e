#include "parsing/argument_grammar.hpp"

#include "base/check.hpp"
#include "pagewheel/errors.hpp"
#include "parsing/arguments/argument_grammars.hpp"

namespace pagewheel {
namespace {

using nlohmann::ordered_json;

GrammarNode write_arguments(const ArgumentNotation& notation, ArgumentSchema& schema) {
    using Kind = ArgumentNotation::Kind;
    switch (notation.kind) {
        case Kind::JSON:
            return json_argument_grammar(schema, notation);
        case Kind::PYTHON:
            return python_argument_grammar(schema, notation);
        case Kind::QUOTED:
            return quoted_argument_grammar(schema, notation);
        case Kind::TAGGED:
            return tagged_argument_grammar(schema, notation);
    }
    throw Error("unknown notation");
}

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
        ArgumentSchema arguments(root, whose);
        return write_arguments(notation, arguments);
    } catch (const nlohmann::json::exception& error) {  // a keyword of another type than it has
        throw InvalidArgument(
            concat("tools: ", whose, ": parameters are no JSON schema: ", error.what()));
    }
}

}  // namespace pagewheel
