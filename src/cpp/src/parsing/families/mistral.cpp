#include "parsing/family.hpp"
#include "parsing/json_calls.hpp"
#include "parsing/named_calls.hpp"

namespace pagewheel {

Family mistral_family() {
    Family family;
    family.name = "mistral";
    family.models = "Mistral, Ministral, Magistral and Devstral";
    family.reasoning = ReasoningTags{{"[THINK]"}, {"[/THINK]"}};
    family.sections = {{"[TOOL_CALLS]", mistral_calls()}};
    family.dropped = {"</s>"};
    family.needs_special_tokens = true;
    family.template_signs = {{"[TOOL_CALLS]"}};
    CallNotation named;
    named.trigger = "[TOOL_CALLS]";
    named.after_name = "[ARGS]";
    named.has_one_call = named.may_repeat = true;
    CallNotation list = json_list_notation("[TOOL_CALLS]");
    CallNotation spaced_list = list;
    spaced_list.open = " [";
    family.notations.sections = {named, list, spaced_list};
    return family;
}

}  // namespace pagewheel
