#include "parsing/family.hpp"
#include "parsing/json_calls.hpp"

namespace pagewheel {

Family gigachat_family() {
    Family family;
    family.name = "gigachat";
    family.models = "GigaChat 3";
    family.sections = {{"<|function_call|>", json_calls()},
                       {"function call<|role_sep|>\n", json_calls()}};
    family.dropped = {"<|message_sep|>", "</s>"};
    family.needs_special_tokens = true;
    family.template_signs = {{"<|function_call|>"}, {"function call", "message_sep"}};
    for (const SectionMarker& section : family.sections) {
        CallNotation call = json_notation(section.text);
        call.has_one_call = true;
        family.notations.sections.push_back(call);
    }
    return family;
}

}  // namespace pagewheel
