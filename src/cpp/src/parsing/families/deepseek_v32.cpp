#include "parsing/family.hpp"
#include "parsing/tagged_calls.hpp"

namespace pagewheel {

Family deepseek_v32_family() {
    Family family;
    family.name = "deepseek_v32";
    family.models = "DeepSeek V3.2";
    family.reasoning = ReasoningTags{{"<think>"}, {"</think>"}};
    TaggedCallsFormat format;
    format.opener = "<｜DSML｜invoke name=\"";
    format.name_end = "\">";
    format.key_open = "<｜DSML｜parameter name=\"";
    format.key_ends = {"\" string=\"true\">", "\" string=\"false\">"};
    format.ends_tell_types = true;
    format.value_close = "</｜DSML｜parameter>";
    format.call_close = "</｜DSML｜invoke>";
    format.section_close = "</｜DSML｜function_calls>";
    family.sections = {{"<｜DSML｜function_calls>", tagged_calls(format)}};
    family.dropped = {"<｜end▁of▁sentence｜>"};
    family.needs_special_tokens = true;
    family.template_signs = {{"｜DSML｜", "function_calls"}};
    CallNotation calls;
    calls.trigger = "<｜DSML｜function_calls>";
    calls.open = "\n";
    calls.before_name = format.opener;
    calls.after_name = "\">\n";
    calls.arguments = tagged_arguments(format);
    calls.after_arguments = "</｜DSML｜invoke>\n";
    calls.close = format.section_close;
    family.notations.sections = {calls};
    return family;
}

}  // namespace pagewheel
