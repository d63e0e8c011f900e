#include "parsing/family.hpp"
#include "parsing/json_calls.hpp"

namespace pagewheel {

Family qwen_family() {
    Family family;
    family.name = "qwen";
    family.models = "Qwen 2.5 and 3, QwQ, Hermes, SmolLM3, Granite 4, MiMo, Bielik";
    family.reasoning = ReasoningTags{{"<think>"}, {"</think>"}};
    JsonCallsFormat format;
    format.may_repeat = true;
    format.closers = {"</tool_call>"};
    family.sections = {{"<tool_call>", json_calls(format)}};
    family.dropped = {"<|im_end|>", "<|endoftext|>", "<|end_of_text|>"};
    family.template_signs = {{"<tool_call>"}};
    CallNotation calls = json_notation("<tool_call>");
    calls.open = "\n";
    calls.close = "\n</tool_call>";
    calls.separator = "\n";
    calls.has_one_call = calls.may_repeat = true;
    family.notations.sections = {calls};
    return family;
}

}  // namespace pagewheel
