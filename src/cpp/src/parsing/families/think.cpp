#include "parsing/family.hpp"

namespace pagewheel {

Family think_family() {
    Family family;
    family.name = "think";
    family.models = "models that reason between <think> and </think>, without tools";
    family.reasoning = ReasoningTags{{"<think>"}, {"</think>"}};
    family.template_signs = {{"</think>"}};
    return family;
}

}  // namespace pagewheel
