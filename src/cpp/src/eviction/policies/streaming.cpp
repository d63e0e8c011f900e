// The oldest tokens go.
#include "eviction/policies/parts.hpp"

namespace pagewheel {
namespace {

class Streaming final : public EvictionPolicy {
public:
    void drop(const EvictionView& view, size_t count, std::vector<size_t>& dropped) override {
        for (size_t i = 0; i < count; ++i) dropped.push_back(view.first_unit + i);
    }
};

}  // namespace

EvictionPolicyKind streaming_policy() {
    return {"streaming",
            "the oldest go (StreamingLLM, Xiao et al. 2023, arXiv:2309.17453)",
            "",
            false,
            [](const CacheEvictionConfig&) -> std::shared_ptr<EvictionPolicy> {
                return std::make_shared<Streaming>();
            },
            nullptr};
}

}  // namespace pagewheel
