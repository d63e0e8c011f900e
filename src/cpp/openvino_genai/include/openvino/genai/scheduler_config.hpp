// How requests share one step and one cache.
#pragma once

#include <cstddef>
#include <string>
#include <tuple>

#include "openvino/genai/cache_eviction.hpp"
#include "openvino/genai/names.hpp"
#include "openvino/genai/sparse_attention.hpp"
#include "pagewheel/scheduler_config.hpp"

namespace pagewheel::openvino_genai {

/// pagewheel::SchedulerConfig, but a step has at most 256 tokens, and eviction takes whole blocks.
struct SchedulerConfig : pagewheel::SchedulerConfig {
    using Base = std::tuple<pagewheel::SchedulerConfig>;  ///< What an ov::Any of it gives, too.

    // What these ask for is not there yet: they are kept, and a pipeline refuses them.
    bool use_sparse_attention = false;
    SparseAttentionConfig sparse_attention_config;
    size_t num_linear_attention_blocks = 0;

    SchedulerConfig() {
        max_num_batched_tokens = 256;
        cache_eviction_config = CacheEvictionConfig();
    }

    /// Throws InvalidArgument where it asks for what is not there.
    void check_supported() const {
        if (use_sparse_attention)
            refuse_missing("use_sparse_attention is true", "sparse attention");
        if (num_linear_attention_blocks > 0)
            refuse_missing(
                "num_linear_attention_blocks is " + std::to_string(num_linear_attention_blocks),
                "linear attention");
    }
};

/// A property of pipelines.
inline constexpr ov::Property<SchedulerConfig> scheduler_config{"scheduler_config"};

}  // namespace pagewheel::openvino_genai
