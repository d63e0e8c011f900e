#include "parsing/family.hpp"
#include "parsing/tagged_calls.hpp"

namespace pagewheel {

Family glm_family() {
    Family family;
    family.name = "glm";
    family.models = "GLM 4.5 and newer, Ling 3";
    family.reasoning = ReasoningTags{{"<think>"}, {"</think>"}};
    TaggedCallsFormat format;
    format.key_open = "<arg_key>";
    format.key_ends = {"</arg_key>"};
    format.value_open = "<arg_value>";
    format.value_close = "</arg_value>";
    format.call_close = "</tool_call>";
    family.sections = {{"<tool_call>", tagged_calls(format)}};
    family.dropped = {"<|observation|>", "<|user|>", "<|endoftext|>", "<|role_end|>"};
    family.template_signs = {{"<arg_key>", "<tool_call>"}};
    CallNotation call;
    call.trigger = "<tool_call>";
    call.after_name = "\n";
    call.arguments = tagged_arguments(format);
    call.after_arguments = "</tool_call>";
    call.separator = "\n";
    call.has_one_call = call.may_repeat = true;
    family.notations.sections = {call};
    return family;
}

}  // namespace pagewheel
