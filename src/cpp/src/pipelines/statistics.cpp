#include "pagewheel/statistics.hpp"

#include <cmath>

#include "check.hpp"

namespace pagewheel {

std::string PipelineStatistics::to_string() const {
    const auto us = [](double time) { return size_t(std::lround(time)); };
    return concat(
        "step ", num_steps, ": ", num_running, " running, ", num_queued, " queued, ", num_preempted,
        " preempted; blocks: ", num_used_blocks, " used, ", num_cached_blocks, " cached, ",
        num_free_blocks, " free; batch: ", latest_step.num_sequences, " sequences, ",
        latest_step.num_tokens, " tokens; us: ", us(latest_step.schedule_time), " schedule, ",
        us(latest_step.fill_time), " fill, ", us(latest_step.infer_time), " infer, ",
        us(latest_step.sampling_time), " sample, ", us(latest_step.text_time), " text");
}

}  // namespace pagewheel
