#include "parsing/family.hpp"
#include "parsing/python_calls.hpp"

namespace pagewheel {

Family gemma_family() {
    Family family;
    family.name = "gemma";
    family.models = "Gemma 2 and 3";
    PythonCallsFormat format;
    format.in_list = false;
    format.closers = {"```"};
    family.sections = {{"```tool_code\n", python_calls(format)}};
    family.dropped = {"<end_of_turn>", "<eos>"};
    family.template_signs = {{"<start_of_turn>"}};
    CallNotation calls = python_notation("", "\n", "\n```");
    calls.trigger = "```tool_code\n";
    family.notations.sections = {calls};
    return family;
}

}  // namespace pagewheel
