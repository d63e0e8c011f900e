#include "parsing/family.hpp"
#include "parsing/json_calls.hpp"

namespace pagewheel {

Family minimax_family() {
    Family family;
    family.name = "minimax";
    family.models = "MiniMax M1";
    family.reasoning = ReasoningTags{{"<think>"}, {"</think>"}};
    JsonCallsFormat format;
    format.may_repeat = true;
    format.closers = {"</tool_calls>"};
    family.sections = {{"<tool_calls>", json_calls(format)}};
    family.dropped = {"<end_of_sentence>"};
    family.template_signs = {{"<tool_calls>"}};
    CallNotation calls = json_notation("<tool_calls>");
    calls.open = calls.separator = "\n";
    calls.close = "\n</tool_calls>";
    family.notations.sections = {calls};
    return family;
}

}  // namespace pagewheel
