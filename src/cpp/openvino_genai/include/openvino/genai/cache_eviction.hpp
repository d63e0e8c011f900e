// How a sequence's KV cache is kept within a budget.
#pragma once

#include <cstddef>
#include <tuple>

#include "openvino/genai/names.hpp"

namespace pagewheel::openvino_genai {

/// pagewheel::CacheEvictionConfig, but whole blocks go.
class CacheEvictionConfig : public pagewheel::CacheEvictionConfig {
public:
    using Base = std::tuple<pagewheel::CacheEvictionConfig>;  ///< What an ov::Any of it gives, too.

    CacheEvictionConfig() { granularity = EvictionGranularity::BLOCK; }
    CacheEvictionConfig(size_t start_size, size_t recent_size, size_t max_cache_size,
                        AggregationMode aggregation_mode, bool apply_rotation = false,
                        size_t snapkv_window_size = 8, const KVCrushConfig& kvcrush_config = {})
        : pagewheel::CacheEvictionConfig(start_size, recent_size, max_cache_size, aggregation_mode,
                                         apply_rotation, snapkv_window_size, kvcrush_config) {
        granularity = EvictionGranularity::BLOCK;
    }
};

}  // namespace pagewheel::openvino_genai
