#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.hpp"
#include "pagewheel/statistics.hpp"
#include "runtime/statistics.hpp"

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
    metrics.cache_size_in_bytes = metrics.kv_cache_size_in_bytes + statistics.draft_cache_bytes;
    metrics.preemptions = statistics.num_preemptions;
    metrics.prompt_tokens = statistics.num_prompt_tokens;
    metrics.prefix_cache_hit_tokens = statistics.num_prefix_cache_hit_tokens;
    metrics.prefix_cache_usage = percent(double(statistics.num_prefix_blocks));
    return metrics;
}

namespace {

constexpr size_t usage_window = 1000;

}  // namespace

StepRecorder::StepRecorder(const Scheduler& scheduler, const RequestQueue& queue,
                           const Model& model, size_t draft_cache_bytes, size_t interval)
    : m_scheduler(scheduler), m_queue(queue), m_interval(interval) {
    m_statistics.num_blocks = m_statistics.num_free_blocks = scheduler.pool().size();
    m_statistics.block_size = model.block_size();
    m_statistics.block_bytes = model.block_bytes();
    m_statistics.draft_cache_bytes = draft_cache_bytes;
}

void StepRecorder::count_blocks() {
    const BlockUsage usage = m_scheduler.usage();
    const std::lock_guard lock(m_mutex);
    m_statistics.num_used_blocks = usage.num_used;
    m_statistics.num_cached_blocks = usage.num_cached;
    m_statistics.num_free_blocks = usage.num_free;
    m_statistics.num_prefix_blocks = usage.num_in_tree;
    m_statistics.num_checkpoints = usage.num_checkpoints;
}

std::string StepRecorder::record(const StepStatistics& step) {
    const SchedulerTotals& totals = m_scheduler.totals();
    const SchedulerQueues queues = m_scheduler.queues();
    const std::lock_guard lock(m_mutex);
    PipelineStatistics& all = m_statistics;
    const size_t used = all.num_used_blocks, at = all.num_steps % usage_window;
    if (m_used.size() == at) m_used.push_back(0);
    m_sum_used += used - std::exchange(m_used[at], used);
    all.max_used_blocks = std::max(all.max_used_blocks, used);
    all.mean_used_blocks = double(m_sum_used) / double(m_used.size());
    ++all.num_steps;
    all.num_running = queues.num_running;
    all.num_preempted = queues.num_preempted;
    all.latest_step = step;
    all.all_steps += step;
    all.num_preemptions = totals.num_preemptions;
    all.num_prompt_tokens = totals.num_prompt_tokens;
    all.num_prefix_cache_hit_tokens = totals.num_prefix_hits;
    all.num_evicted_tokens = totals.num_evicted;
    const bool is_due = m_interval != 0 && all.num_steps % m_interval == 0;
    if (!is_due) return {};
    all.num_queued = m_queue.num_queued();
    return all.to_string();
}

PipelineStatistics StepRecorder::statistics() const {
    const std::lock_guard lock(m_mutex);
    PipelineStatistics statistics = m_statistics;
    statistics.num_requests = m_queue.num_requests();
    statistics.num_queued = m_queue.num_queued();
    return statistics;
}

}  // namespace pagewheel
