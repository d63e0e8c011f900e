#include "runtime/step_recorder.hpp"

#include <algorithm>
#include <utility>

namespace pagewheel {
namespace {

constexpr size_t usage_window = 1000;

}  // namespace

StepRecorder::StepRecorder(const Scheduler& scheduler, const Inbox& inbox, size_t block_bytes,
                           size_t interval)
    : m_scheduler(scheduler), m_inbox(inbox), m_interval(interval) {
    const size_t num_blocks = scheduler.pool().size();
    m_metrics.cache_size_in_bytes = m_metrics.kv_cache_size_in_bytes = num_blocks * block_bytes;
    m_statistics.num_blocks = m_statistics.num_free_blocks = num_blocks;
}

void StepRecorder::count_blocks() {
    const BlockUsage usage = m_scheduler.usage();
    const std::lock_guard lock(m_mutex);
    m_statistics.num_used_blocks = usage.num_used;
    m_statistics.num_cached_blocks = usage.num_cached;
    m_statistics.num_free_blocks = usage.num_free;
    const float percent = 100.0f / float(m_statistics.num_blocks);
    m_metrics.cache_usage = percent * float(usage.num_used);
    m_metrics.prefix_cache_usage = percent * float(usage.num_in_tree);
}

std::string StepRecorder::record(const StepStatistics& step) {
    const SchedulerTotals& totals = m_scheduler.totals();
    const SchedulerQueues queues = m_scheduler.queues();
    const std::lock_guard lock(m_mutex);
    PipelineStatistics& all = m_statistics;
    const float usage = m_metrics.cache_usage;
    const size_t at = all.num_steps % usage_window;
    if (m_usage.size() == at) m_usage.push_back(0);
    m_usage_sum += double(usage) - double(std::exchange(m_usage[at], usage));
    ++all.num_steps;
    all.num_queued = m_inbox.num_queued();
    all.num_running = queues.num_running;
    all.num_preempted = queues.num_preempted;
    all.latest_step = step;
    all.all_steps += step;
    all.num_preemptions = m_metrics.preemptions = totals.num_preemptions;
    all.num_prompt_tokens = m_metrics.prompt_tokens = totals.num_prompt_tokens;
    all.num_prefix_cache_hit_tokens = m_metrics.prefix_cache_hit_tokens = totals.num_prefix_hits;
    m_metrics.scheduled_requests = step.num_sequences;
    m_metrics.max_cache_usage = std::max(m_metrics.max_cache_usage, usage);
    m_metrics.avg_cache_usage = float(m_usage_sum / double(m_usage.size()));
    const bool is_due = m_interval != 0 && all.num_steps % m_interval == 0;
    return is_due ? all.to_string() : std::string();
}

PipelineMetrics StepRecorder::metrics() const {
    const std::lock_guard lock(m_mutex);
    PipelineMetrics metrics = m_metrics;
    metrics.requests = m_inbox.num_requests();
    return metrics;
}

PipelineStatistics StepRecorder::statistics() const {
    const std::lock_guard lock(m_mutex);
    PipelineStatistics statistics = m_statistics;
    statistics.num_queued = m_inbox.num_queued();
    return statistics;
}

}  // namespace pagewheel
