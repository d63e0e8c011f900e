#include "parsing/family.hpp"
#include "parsing/json_calls.hpp"

namespace pagewheel {

Family granite_family() {
    Family family;
    family.name = "granite";
    family.models = "Granite 3";
    family.reasoning = ReasoningTags{{"<think>", "Here is my thought process:"},
                                     {"</think>", "Here is my response:"}};
    JsonCallsFormat in_tags;
    in_tags.closers = {"</tool_call>"};
    family.sections = {{"<|tool_call|>", json_calls()},
                       {"<tool_call>", json_calls(in_tags)},
                       {"<function_call>", json_calls()}};
    family.dropped = {"<response>", "</response>", "<|end_of_text|>"};
    family.needs_special_tokens = true;
    family.template_signs = {{"<|tool_call|>", "<|start_of_role|>"}};
    CallNotation single = json_notation("<function_call>");
    single.has_one_call = true;
    family.notations.sections = {json_list_notation("<|tool_call|>"),
                                 json_list_notation("<tool_call>", "</tool_call>"), single};
    return family;
}

}  // namespace pagewheel
