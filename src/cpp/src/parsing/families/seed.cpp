#include "parsing/family.hpp"
#include "parsing/tagged_calls.hpp"

namespace pagewheel {

Family seed_family() {
    Family family;
    family.name = "seed";
    family.models = "Seed-OSS";
    family.reasoning = ReasoningTags{{"<seed:think>"}, {"</seed:think>"}};
    TaggedCallsFormat format;
    format.opener = "<function=";
    format.name_end = ">";
    format.key_open = "<parameter=";
    format.key_ends = {">"};
    format.value_close = "</parameter>";
    format.call_close = "</function>";
    format.section_close = "</seed:tool_call>";
    family.sections = {{"<seed:tool_call>", tagged_calls(format)}};
    family.dropped = {"<seed:eos>"};
    family.template_signs = {{"<seed:tool_call>"}};
    family.notations.sections = {tagged_notation(format, "<seed:tool_call>", "\n<function=")};
    return family;
}

}  // namespace pagewheel
