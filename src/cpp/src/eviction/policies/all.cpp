// The built-in policies. A new one is a file in this folder that defines <name>_policy(), and a
// line here.
#include "base/check.hpp"
#include "pagewheel/cache_eviction_config.hpp"
#include "pagewheel/errors.hpp"
#include "pagewheel/eviction_policy.hpp"

// clang-format off
#define PAGEWHEEL_POLICIES(POLICY) \
    POLICY(sum)          \
    POLICY(norm_sum)     \
    POLICY(snapkv)       \
    POLICY(streaming)    \
    POLICY(tova)         \
    POLICY(kvcrush)      \
    POLICY(adaptive_rkv) \
    POLICY(key_norm)     \
    POLICY(key_diff)
// clang-format on

namespace pagewheel {

#define PAGEWHEEL_DECLARE(name) EvictionPolicyKind name##_policy();
PAGEWHEEL_POLICIES(PAGEWHEEL_DECLARE)

const std::vector<EvictionPolicyKind>& eviction_policies() {
#define PAGEWHEEL_LIST(name) name##_policy(),
    static const std::vector<EvictionPolicyKind> all{PAGEWHEEL_POLICIES(PAGEWHEEL_LIST)};
    return all;
}

std::shared_ptr<EvictionPolicy> make_policy(const CacheEvictionConfig& config) {
    if (config.custom_policy) return config.custom_policy;
    const std::string name = config.policy_name();
    for (const EvictionPolicyKind& kind : eviction_policies())
        if (name == kind.name) return kind.make(config);
    refuse_argument(ParameterName("policy"), " is '", name, "', which is none of pagewheel's");
}

}  // namespace pagewheel
