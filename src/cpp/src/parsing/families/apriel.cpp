#include "parsing/family.hpp"
#include "parsing/json_calls.hpp"

namespace pagewheel {

Family apriel_family() {
    Family family;
    family.name = "apriel";
    family.models = "Apriel";
    family.reasoning =
        ReasoningTags{{"Here are my reasoning steps:\n"}, {"[BEGIN FINAL RESPONSE]"}};
    JsonCallsFormat format;
    format.closers = {"</tool_calls>"};
    family.sections = {{"<tool_calls>", json_calls(format)}};
    family.dropped = {"<|end|>"};
    family.template_signs = {{"<tool_calls>[", "</tool_calls>"}};
    family.notations.sections = {json_list_notation("<tool_calls>", "</tool_calls>")};
    return family;
}

}  // namespace pagewheel
