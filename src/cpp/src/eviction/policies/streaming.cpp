// The oldest tokens go.
#include "eviction/policies/parts.hpp"

namespace pagewheel {
namespace {

void drop_oldest(const EvictionView& view, size_t count, std::vector<size_t>& dropped) {
    for (size_t i = 0; i < count; ++i) dropped.push_back(view.first_unit + i);
}

}  // namespace

EvictionPolicyKind streaming_policy() {
    return {"streaming", "the oldest go (StreamingLLM, Xiao et al. 2023, arXiv:2309.17453)", "",
            false, &made_of<drop_oldest>};
}

}  // namespace pagewheel
