#include "pagewheel/statistics.hpp"

#include <cmath>

#include "base/check.hpp"

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

PipelineMetrics metrics_of(const PipelineStatistics& statistics) {
    const auto percent = [&](double blocks) {
        return statistics.num_blocks == 0 ? 0.0f
                                          : float(100 * blocks / double(statistics.num_blocks));
    };
    PipelineMetrics metrics;
    metrics.requests = statistics.num_requests;
    metrics.scheduled_requests = statistics.latest_step.num_sequences;
    metrics.cache_usage = percent(double(statistics.num_used_blocks));
    metrics.max_cache_usage = percent(double(statistics.max_used_blocks));
    metrics.avg_cache_usage = percent(statistics.mean_used_blocks);
    metrics.kv_cache_size_in_bytes = statistics.num_blocks * statistics.block_bytes;
    metrics.cache_size_in_bytes = metrics.kv_cache_size_in_bytes;
    metrics.preemptions = statistics.num_preemptions;
    metrics.prompt_tokens = statistics.num_prompt_tokens;
    metrics.prefix_cache_hit_tokens = statistics.num_prefix_cache_hit_tokens;
    metrics.prefix_cache_usage = percent(double(statistics.num_prefix_blocks));
    return metrics;
}

}  // namespace pagewheel
