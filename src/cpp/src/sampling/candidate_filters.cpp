#include "sampling/candidate_filters.hpp"

namespace pagewheel {

const std::vector<FilterKind>& candidate_filters() {
    static const std::vector<FilterKind> table{
#define PAGEWHEEL_PARAMETER(type, name, initial, condition, allowed, help)
#define PAGEWHEEL_PROCESSOR PAGEWHEEL_PARAMETER
#define PAGEWHEEL_FILTER(type, name, initial, condition, allowed, help) {#name, &make_##name},
#include "pagewheel/generation_parameters.def"
    };
    return table;
}

}  // namespace pagewheel
