#include "parsing/family.hpp"
#include "parsing/named_calls.hpp"

namespace pagewheel {

Family gemma4_family() {
    Family family;
    family.name = "gemma4";
    family.models = "Gemma 4";
    family.reasoning = ReasoningTags{{"<|channel>thought\n"}, {"<channel|>"}};
    family.sections = {{"<|tool_call>", gemma_calls("<|\"|>", "<tool_call|>")}};
    family.dropped = {"<|tool_response>", "<turn|>", "<eos>"};
    family.needs_special_tokens = true;
    family.template_signs = {{"<|tool_call>"}};
    family.notations.sections = {gemma_notation("<|tool_call>", "<|\"|>", "<tool_call|>")};
    return family;
}

}  // namespace pagewheel
