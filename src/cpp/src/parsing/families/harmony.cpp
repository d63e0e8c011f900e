#include "parsing/family.hpp"
#include "parsing/named_calls.hpp"

namespace pagewheel {

Family harmony_family() {
    Family family;
    family.name = "harmony";
    family.models = "gpt-oss";
    family.reasoning = ReasoningTags{{}, {"<|end|>", "<|return|>", "<|call|>"}};
    // A text begins in the middle of the header that the prompt has begun.
    family.sections = {{"<|start|>", harmony_message("<|start|>")},
                       {"<|channel|>", harmony_message("<|channel|>")},
                       {" to=functions.", harmony_message(""), true}};
    family.dropped = {"<|end|>", "<|return|>", "<|call|>"};
    family.needs_special_tokens = true;
    family.template_signs = {{"<|channel|>", "<|message|>"}};
    CallNotation call;
    call.has_one_call = true;
    call.before_name = " to=functions.";
    call.after_name = "<|channel|>commentary <|constrain|>json<|message|>";
    CallNotation after_channel = call;
    after_channel.before_name = "<|channel|>commentary to=functions.";
    after_channel.after_name = " <|constrain|>json<|message|>";
    family.notations.sections = {call, after_channel};
    family.notations.has_channels = true;
    return family;
}

}  // namespace pagewheel
