#include "parsing/family.hpp"
#include "parsing/json_calls.hpp"

namespace pagewheel {

Family phi4_family() {
    Family family;
    family.name = "phi4";
    family.models = "Phi-4-mini, Phi-4 reasoning";
    family.reasoning = ReasoningTags{{"<think>"}, {"</think>"}};
    JsonCallsFormat format;
    format.closers = {"<|/tool_call|>"};
    family.sections = {{"<|tool_call|>", json_calls(format)}, {"functools", json_calls()}};
    family.dropped = {"<|end|>", "<|im_end|>", "<|endoftext|>"};
    family.needs_special_tokens = true;
    family.template_signs = {{"<|tool_call|>"}, {"<|tool|>"}, {"functools"}, {"<|im_sep|>"}};
    // The word alone may be in a text about Python.
    CallNotation functools = json_list_notation("functools[");
    functools.open = "";
    family.notations.sections = {json_list_notation("<|tool_call|>", "<|/tool_call|>"), functools};
    return family;
}

}  // namespace pagewheel
