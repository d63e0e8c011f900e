// How a sequence's KV cache is kept within a budget.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "pagewheel/visibility.hpp"

namespace pagewheel {

class EvictionPolicy;

/// How scores of several steps become one. ADAPTIVE_RKV chooses that policy, as in openvino_genai.
enum class AggregationMode {
    SUM = 0,       ///< sum of the attention a token received
    NORM_SUM = 1,  ///< the same, divided by the number of queries that could see the token
    ADAPTIVE_RKV = 2,
};

/// What KVCrush compares blocks with.
enum class KVCrushAnchorPointMode { RANDOM = 0, ZEROS = 1, ONES = 2, MEAN = 3, ALTERNATING = 4 };

/// KVCrush (Jha et al. 2025, arXiv:2503.00022): of the blocks that scores would evict, `budget` are
/// kept as representatives of the others.
struct PAGEWHEEL_API KVCrushConfig {
    size_t budget = 0;  ///< blocks; 0: off
    KVCrushAnchorPointMode anchor_point_mode = KVCrushAnchorPointMode::RANDOM;
    size_t rng_seed = 0;

    KVCrushConfig() = default;
    explicit KVCrushConfig(size_t budget,
                           KVCrushAnchorPointMode mode = KVCrushAnchorPointMode::RANDOM,
                           size_t rng_seed = 0)
        : budget(budget), anchor_point_mode(mode), rng_seed(rng_seed) {}
    std::string to_string() const;
};

/// Adaptive R-KV: what carries `attention_mass` of the attention of the last `window_size` queries
/// stays; of the rest, the keys least like the others (after R-KV, Cai et al. 2025,
/// arXiv:2505.24133).
struct PAGEWHEEL_API AdaptiveRKVConfig {
    double attention_mass = 0.9;
    size_t window_size = 8;

    AdaptiveRKVConfig() = default;
    explicit AdaptiveRKVConfig(double attention_mass, size_t window_size = 8)
        : attention_mass(attention_mass), window_size(window_size) {}
    std::string to_string() const;
};

enum class EvictionGranularity {
    BLOCK = 0,  ///< whole blocks of the cache go
    TOKEN = 1,  ///< single tokens go; the others are packed into dense blocks
    AUTO = 2,   ///< TOKEN for policies that go by attention (EvictionPolicyKind::by_attention):
                ///< more of what matters stays; else BLOCK
};

/// What a token's score becomes of its neighbours' and its own.
enum class ScorePooling {
    ROOT_MEAN = 0,  ///< the square of the mean of their roots: one that stands out counts little
    MAX = 1,        ///< the greatest, as in SnapKV
    WITH_OWN = 2,   ///< its own, and twice ROOT_MEAN: both what stands out and its neighbours stay
};

/// Sizes are tokens. A cache has three areas: the start (attention sinks), which stays, the recent
/// tokens, which stay, and what is between, of which the policy chooses what goes as soon as
/// max_cache_size is reached. The names and defaults are openvino_genai's; position_limit, policy,
/// granularity, score_pooling, evict_during_prefill and decision_delay are pagewheel's.
struct PAGEWHEEL_API CacheEvictionConfig {
    AggregationMode aggregation_mode = AggregationMode::NORM_SUM;
    /// Positions stay below position_limit: before one reaches it, positions close up. Surviving
    /// keys rotate down by what was evicted before them, and new tokens get the position processed
    /// - evicted. Needs the model's rotary frequencies. False: all positions stay as they were, and
    /// grow past the model's context.
    bool apply_rotation = false;
    /// With apply_rotation; 0 without. 0: the model's context, at most 32,768 or twice the budget,
    /// so that keys stay where the full cache has them for long; no limit is above the context.
    /// With one that a sequence reaches between two decisions, such as 1, or an unknown context and
    /// no limit, positions close up with each decision. What is held before the first decision, and
    /// a prefill chunk, may pass it. Memory grows with it: a number for each position and rotary
    /// dimension, twice.
    size_t position_limit = 0;
    /// Last queries of the prompt whose attention is counted (SnapKV, Li et al. 2024,
    /// arXiv:2404.14469). 0: all of them.
    size_t snapkv_window_size = 8;
    KVCrushConfig kvcrush_config;
    AdaptiveRKVConfig adaptive_rkv_config;

    /// "": by aggregation_mode and kvcrush_config. Else the name of one of eviction_policies(),
    /// which says what they do and names the papers.
    std::string policy;
    /// A policy of the caller's; `policy` must be empty then.
    std::shared_ptr<EvictionPolicy> custom_policy;
    EvictionGranularity granularity = EvictionGranularity::AUTO;
    /// A score is pooled over that many tokens around it; odd. 1: it stays as it is. 0: as the
    /// granularity needs, see pooling_size().
    size_t score_pooling = 0;
    ScorePooling score_pooling_mode = ScorePooling::WITH_OWN;
    /// Prompts are evicted while they are computed, so that one longer than the cache needs no more
    /// than the budget and a chunk. False: after the prompt.
    bool evict_during_prefill = false;
    /// A prompt's first decision waits for so many tokens of the answer, whose queries say best
    /// what is needed (after Lookahead Q-Cache, Wang et al. 2025, arXiv:2505.20334, which throws
    /// these tokens away). Until then the whole prompt is held, as it is while it is computed, but
    /// within the model's context; where blocks are short the decision falls at once. At most
    /// max_cache_size; 0 with evict_during_prefill.
    size_t decision_delay = 0;

    CacheEvictionConfig() = default;
    CacheEvictionConfig(size_t start_size, size_t recent_size, size_t max_cache_size,
                        AggregationMode aggregation_mode, bool apply_rotation = false,
                        size_t snapkv_window_size = 8, const KVCrushConfig& kvcrush_config = {});

    size_t get_start_size() const { return m_start_size; }
    size_t get_recent_size() const { return m_recent_size; }
    size_t get_max_cache_size() const { return m_max_cache_size; }
    /// max_cache_size - start_size - recent_size.
    size_t get_evictable_size() const { return m_max_cache_size - m_start_size - m_recent_size; }
    /// The policy's name with "" resolved; "custom" for the caller's.
    std::string policy_name() const;

    /// granularity with AUTO resolved.
    EvictionGranularity resolved_granularity() const;
    /// score_pooling with 0 resolved: 1 for blocks, whose tokens stay together anyway; 17 for
    /// tokens: of a number or a name some would go otherwise (docs/eviction.md has the figures). A
    /// policy of the caller's sees scores as they are.
    size_t pooling_size() const;

    /// Throws InvalidArgument that names the parameter, its value and what is allowed.
    void validate() const;
    /// Checks also what depends on the cache's block size.
    void validate(size_t block_size) const;
    std::string to_string() const;

private:
    size_t m_start_size = 32, m_recent_size = 128, m_max_cache_size = 672;
};

}  // namespace pagewheel
