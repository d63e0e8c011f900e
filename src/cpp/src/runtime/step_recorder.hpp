// What the pipeline is doing, in numbers.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include "pagewheel/continuous_batching_pipeline.hpp"
#include "pagewheel/statistics.hpp"
#include "runtime/inbox.hpp"
#include "scheduling/scheduler.hpp"

namespace pagewheel {

/// Statistics and metrics after the latest step. The step loop writes, any thread reads.
class StepRecorder {
public:
    /// `interval`: steps between two lines of the log; 0: none.
    StepRecorder(const Scheduler& scheduler, const Inbox& inbox, size_t block_bytes,
                 size_t interval);

    /// Whenever blocks were taken or given back.
    void count_blocks();
    /// After a step. A line for the log, if one is due.
    std::string record(const StepStatistics& step);

    size_t num_steps() const { return m_statistics.num_steps; }  ///< the step loop's to ask
    PipelineMetrics metrics() const;
    PipelineStatistics statistics() const;

private:
    const Scheduler& m_scheduler;
    const Inbox& m_inbox;
    const size_t m_interval;

    mutable std::mutex m_mutex;  // guards what follows
    PipelineStatistics m_statistics;
    PipelineMetrics m_metrics;
    std::vector<float> m_usage;  // percent of the blocks, of the last steps; a ring
    double m_usage_sum = 0;
};

}  // namespace pagewheel
