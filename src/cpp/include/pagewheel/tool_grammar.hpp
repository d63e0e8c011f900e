// Grammars that allow only valid tool calls.
#pragma once

#include <string>

#include "pagewheel/structured_output.hpp"
#include "pagewheel/visibility.hpp"

namespace pagewheel {

struct ToolGrammarOptions {
    /// "none", "auto", "required", or the name of a function, which is called once then.
    std::string tool_choice = "auto";
    bool parallel_tool_calls = true;  ///< False: one call at most.
};

/// What a model of the family (parser_families()) may write if it has these tools, a JSON array as
/// in ChatHistory. ToolCallParser finds in such a text only calls whose arguments are of the
/// function's schema, in the schema's order; where the schema does not say otherwise, none but its
/// properties.
///
/// The text is what follows the reasoning. Of "harmony" it is the whole message with its channels.
///
/// Throws InvalidArgument for tools, choices or families that are none, and for schemas that the
/// family's notation cannot be held to.
PAGEWHEEL_API StructuredOutputConfig tool_call_grammar(const std::string& family,
                                                       const std::string& tools_json,
                                                       const ToolGrammarOptions& options = {});

}  // namespace pagewheel
