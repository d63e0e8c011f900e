#include "parsing/family.hpp"
#include "parsing/named_calls.hpp"

namespace pagewheel {

Family functiongemma_family() {
    Family family;
    family.name = "functiongemma";
    family.models = "FunctionGemma";
    family.sections = {{"<start_function_call>", gemma_calls("<escape>", "<end_function_call>")}};
    family.dropped = {"<start_function_response>", "<end_of_turn>", "<eos>"};
    family.needs_special_tokens = true;
    family.template_signs = {{"<start_function_call>"}};
    family.notations.sections = {
        gemma_notation("<start_function_call>", "<escape>", "<end_function_call>")};
    return family;
}

}  // namespace pagewheel
