#include "parsing/family.hpp"
#include "parsing/json_calls.hpp"

namespace pagewheel {

Family llama3_json_family() {
    Family family;
    family.name = "llama3_json";
    family.models = "Llama 3.1, 3.2 and 3.3";
    JsonCallsFormat format;
    format.is_strict = true;
    format.may_repeat = true;
    format.separators = ";,";
    family.sections = {{"{", json_calls(format), true}, {"[", json_calls(format), true}};
    family.dropped = {"<|python_tag|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"};
    family.template_signs = {{"<|python_tag|>"}, {"<|start_header_id|>", "\"parameters\""}};
    CallNotation calls = json_notation("", "parameters");
    calls.separator = "; ";
    CallNotation after_tag = calls;
    after_tag.trigger = "<|python_tag|>";
    after_tag.separator = ";";
    family.notations.sections = {calls, after_tag};
    family.notations.not_in_text =
        R"(\{[ \n\t\r]*"(name|function|parameters|arguments|id|type|[^"]*\\u))";
    return family;
}

}  // namespace pagewheel
