#include "parsing/family.hpp"
#include "parsing/named_calls.hpp"

namespace pagewheel {

Family deepseek_family() {
    Family family;
    family.name = "deepseek";
    family.models = "DeepSeek V3, V3.1 and R1";
    family.reasoning = ReasoningTags{{"<think>"}, {"</think>"}};
    family.sections = {{"<｜tool▁calls▁begin｜>", deepseek_calls()}};
    family.dropped = {"<｜end▁of▁sentence｜>"};
    family.needs_special_tokens = true;
    family.template_signs = {{"<｜tool▁calls▁begin｜>"}};
    CallNotation v31;
    v31.trigger = "<｜tool▁calls▁begin｜>";
    v31.before_name = "<｜tool▁call▁begin｜>";
    v31.after_name = "<｜tool▁sep｜>";
    v31.after_arguments = "<｜tool▁call▁end｜>";
    v31.close = "<｜tool▁calls▁end｜>";
    CallNotation v3 = v31;
    v3.before_name += "function<｜tool▁sep｜>";
    v3.after_name = "\n```json\n";
    v3.after_arguments = "\n```<｜tool▁call▁end｜>";
    v3.separator = "\n";
    family.notations.sections = {v31, v3};
    return family;
}

}  // namespace pagewheel
