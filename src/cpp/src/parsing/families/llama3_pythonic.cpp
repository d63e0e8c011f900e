#include "parsing/family.hpp"
#include "parsing/python_calls.hpp"

namespace pagewheel {

Family llama3_pythonic_family() {
    Family family;
    family.name = "llama3_pythonic";
    family.models = "Llama 3.2";
    family.sections = {{"[", python_calls(), true}};
    family.dropped = {"<|python_tag|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"};
    family.template_signs = {{"<|start_header_id|>", "func_name1(params_name1"}};
    family.notations.sections = {python_notation("[", ", ", "]")};
    family.notations.not_in_text = python_call_in_list;
    return family;
}

}  // namespace pagewheel
