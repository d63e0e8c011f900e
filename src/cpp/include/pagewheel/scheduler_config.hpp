// How requests share one step and one cache.
#pragma once

#include <cstddef>
#include <string>

#include "pagewheel/cache_eviction_config.hpp"
#include "pagewheel/visibility.hpp"

namespace pagewheel {

/// Limits of a ContinuousBatchingPipeline; the names are those of openvino_genai. The members are
/// the entries of scheduler_parameters.def.
struct PAGEWHEEL_API SchedulerConfig {
#define PAGEWHEEL_PARAMETER(type, name, initial, condition, allowed, help) type name = initial;
#include "pagewheel/scheduler_parameters.def"

    CacheEvictionConfig cache_eviction_config;

    /// Throws InvalidArgument that names the parameter, its value and what is allowed.
    void validate() const;
    std::string to_string() const;
};

}  // namespace pagewheel
