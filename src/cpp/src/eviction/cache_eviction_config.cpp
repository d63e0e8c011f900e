#include "pagewheel/cache_eviction_config.hpp"

#include <iterator>

#include "base/check.hpp"
#include "pagewheel/eviction_policy.hpp"

namespace pagewheel {
namespace {

// Names by enumerator.
constexpr const char* aggregation_modes[] = {"SUM", "NORM_SUM", "ADAPTIVE_RKV"};
constexpr const char* score_poolings[] = {"ROOT_MEAN", "MAX", "WITH_OWN"};
constexpr const char* anchor_point_modes[] = {"RANDOM", "ZEROS", "ONES", "MEAN", "ALTERNATING"};
static_assert(std::size(aggregation_modes) == size_t(AggregationMode::ADAPTIVE_RKV) + 1);
static_assert(std::size(score_poolings) == size_t(ScorePooling::WITH_OWN) + 1);
static_assert(std::size(anchor_point_modes) == size_t(KVCrushAnchorPointMode::ALTERNATING) + 1);

/// nullptr for a name that no built-in policy has.
const EvictionPolicyKind* kind_of(const std::string& name) {
    for (const EvictionPolicyKind& kind : eviction_policies())
        if (name == kind.name) return &kind;
    return nullptr;
}

std::string known_policies() {
    std::string names;
    for (const EvictionPolicyKind& kind : eviction_policies())
        names += (names.empty() ? "" : ", ") + std::string(kind.name);
    return names;
}

}  // namespace

std::string KVCrushConfig::to_string() const {
    return concat("KVCrushConfig { budget: ", budget,
                  ", anchor_point_mode: ", anchor_point_modes[size_t(anchor_point_mode)],
                  ", rng_seed: ", rng_seed, " }");
}

std::string AdaptiveRKVConfig::to_string() const {
    return concat("AdaptiveRKVConfig { attention_mass: ", attention_mass,
                  ", window_size: ", window_size, " }");
}

CacheEvictionConfig::CacheEvictionConfig(size_t start_size, size_t recent_size,
                                         size_t max_cache_size, AggregationMode aggregation_mode,
                                         bool apply_rotation, size_t snapkv_window_size,
                                         const KVCrushConfig& kvcrush_config)
    : aggregation_mode(aggregation_mode),
      apply_rotation(apply_rotation),
      snapkv_window_size(snapkv_window_size),
      kvcrush_config(kvcrush_config),
      m_start_size(start_size),
      m_recent_size(recent_size),
      m_max_cache_size(max_cache_size) {
    validate();
}

std::string CacheEvictionConfig::policy_name() const {
    if (custom_policy) return "custom";
    if (!policy.empty()) return policy;
    if (aggregation_mode == AggregationMode::ADAPTIVE_RKV) return "adaptive_rkv";
    if (kvcrush_config.budget > 0) return "kvcrush";
    return aggregation_mode == AggregationMode::SUM ? "sum" : "norm_sum";
}

EvictionGranularity CacheEvictionConfig::resolved_granularity() const {
    if (granularity != EvictionGranularity::AUTO) return granularity;
    const EvictionPolicyKind* kind = kind_of(policy_name());
    return kind && kind->by_attention ? EvictionGranularity::TOKEN : EvictionGranularity::BLOCK;
}

size_t CacheEvictionConfig::pooling_size() const {
    if (score_pooling > 0) return score_pooling;
    return resolved_granularity() == EvictionGranularity::TOKEN && !custom_policy ? 17 : 1;
}

void CacheEvictionConfig::validate() const {
    check_argument(
        m_start_size <= m_max_cache_size && m_recent_size < m_max_cache_size - m_start_size,
        ParameterName("max_cache_size"), " is ", m_max_cache_size,
        "; allowed: more than start_size ", m_start_size, " plus recent_size ", m_recent_size);
    check_argument(score_pooling == 0 || score_pooling % 2 == 1, ParameterName("score_pooling"),
                   " is ", score_pooling, "; allowed: odd numbers, or 0 for the granularity's own");
    check_argument(decision_delay <= (evict_during_prefill ? 0 : m_max_cache_size),
                   ParameterName("decision_delay"), " is ", decision_delay, "; allowed: ",
                   evict_during_prefill ? "0 with evict_during_prefill" : "up to max_cache_size");
    check_argument(position_limit == 0 || apply_rotation, ParameterName("position_limit"), " is ",
                   position_limit, "; allowed: 0 without apply_rotation");
    check_argument(policy.empty() || !custom_policy, ParameterName("policy"), " is '", policy,
                   "' and custom_policy is set; allowed: one of them");
    if (custom_policy) return;
    const EvictionPolicyKind* kind = kind_of(policy_name());
    check_argument(kind, ParameterName("policy"), " is '", policy,
                   "'; allowed: ", kind ? "" : known_policies());
    if (kind->check) kind->check(*this, 0);
}

void CacheEvictionConfig::validate(size_t block_size) const {
    validate();
    const auto check_multiple = [&](const char* name, size_t value) {
        check_argument(value % block_size == 0, ParameterName(name), " is ", value,
                       "; allowed: multiples of the block size, ", block_size,
                       ", unless granularity is TOKEN");
    };
    if (resolved_granularity() == EvictionGranularity::BLOCK) {
        check_multiple("start_size", m_start_size);
        check_multiple("recent_size", m_recent_size);
        check_multiple("max_cache_size", m_max_cache_size);
    }
    // A block's worth of tokens goes at a time.
    check_argument(get_evictable_size() >= block_size, ParameterName("max_cache_size"), " is ",
                   m_max_cache_size, "; allowed: start_size ", m_start_size, " plus recent_size ",
                   m_recent_size, " plus a block of ", block_size, ", which is ",
                   m_start_size + m_recent_size + block_size, ", or more");
    const EvictionPolicyKind* kind = kind_of(policy_name());
    if (kind && kind->check) kind->check(*this, block_size);
}

std::string CacheEvictionConfig::to_string() const {
    return concat(
        "CacheEvictionConfig { start_size: ", m_start_size, ", recent_size: ", m_recent_size,
        ", max_cache_size: ", m_max_cache_size,
        ", aggregation_mode: ", aggregation_modes[size_t(aggregation_mode)],
        ", apply_rotation: ", apply_rotation ? "true" : "false",
        ", position_limit: ", position_limit, ", snapkv_window_size: ", snapkv_window_size,
        ", policy: ", policy_name(),
        ", granularity: ", resolved_granularity() == EvictionGranularity::BLOCK ? "BLOCK" : "TOKEN",
        ", score_pooling: ", pooling_size(),
        ", score_pooling_mode: ", score_poolings[size_t(score_pooling_mode)],
        ", evict_during_prefill: ", evict_during_prefill ? "true" : "false",
        ", decision_delay: ", decision_delay, ", kvcrush_config: ", kvcrush_config.to_string(),
        ", adaptive_rkv_config: ", adaptive_rkv_config.to_string(), " }");
}

}  // namespace pagewheel
