#include "parsing/family.hpp"
#include "parsing/tagged_calls.hpp"

namespace pagewheel {

Family qwen3_coder_family() {
    Family family;
    family.name = "qwen3_coder";
    family.models = "Qwen3-Coder, Qwen3.5 and Step 3.5";
    family.reasoning = ReasoningTags{{"<think>"}, {"</think>"}};
    TaggedCallsFormat format;
    format.opener = "<function=";
    format.name_end = ">";
    format.key_open = "<parameter=";
    format.key_ends = {">"};
    format.value_close = "</parameter>";
    format.trims_lines = true;
    format.call_close = "</function>";
    format.section_close = "</tool_call>";
    // The first tag may be missing.
    family.sections = {{"<tool_call>", tagged_calls(format)},
                       {"<function=", tagged_calls(format), true}};
    family.dropped = {"<|im_end|>", "<|endoftext|>"};
    family.template_signs = {{"<function=", "<parameter="}};
    family.notations.sections = {tagged_notation(format, "<tool_call>", "\n<function="),
                                 tagged_notation(format, "<function=", "")};
    return family;
}

}  // namespace pagewheel
