// What generate() and pipelines are told by properties.
#pragma once

#include <vector>

#include "openvino/core/any.hpp"
#include "pagewheel/generation_config.hpp"
#include "pagewheel/scheduler_config.hpp"
#include "pagewheel/streamer.hpp"

namespace pagewheel {

struct GenerateProperties {
    std::vector<GenerationConfig> configs;  // one for all prompts, or one each
    StreamerVariant streamer;
};

/// `config` is what they are set in, unless they have one, or a list of them, one for each prompt.
/// Throws InvalidArgument.
GenerateProperties read_generate_properties(GenerationConfig config, ov::AnyMap properties);

/// Takes "scheduler_config" out of the properties; without it `config`.
SchedulerConfig take_scheduler_config(ov::AnyMap& properties, const SchedulerConfig& config);

}  // namespace pagewheel
