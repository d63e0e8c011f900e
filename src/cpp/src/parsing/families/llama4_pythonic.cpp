#include "parsing/family.hpp"
#include "parsing/python_calls.hpp"

namespace pagewheel {

Family llama4_pythonic_family() {
    Family family;
    family.name = "llama4_pythonic";
    family.models = "Llama 4";
    family.sections = {{"[", python_calls(), true}};
    family.dropped = {"<|python_start|>", "<|python_end|>", "<|eot|>", "<|eom|>"};
    family.template_signs = {{"<|header_start|>"}, {"<|python_start|>"}};
    CallNotation in_tags = python_notation("[", ",", "]<|python_end|>");
    in_tags.trigger = "<|python_start|>";
    family.notations.sections = {python_notation("[", ", ", "]"), in_tags};
    family.notations.not_in_text = python_call_in_list;
    return family;
}

}  // namespace pagewheel
