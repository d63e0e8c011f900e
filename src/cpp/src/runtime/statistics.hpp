// What the pipeline is doing, in numbers.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include "pagewheel/statistics.hpp"
#include "runner/model.hpp"
#include "runtime/requests.hpp"
#include "scheduling/scheduler.hpp"

namespace pagewheel {

/// Statistics after the latest step. The step loop writes, any thread reads.
class StepRecorder {
public:
    /// `interval`: steps between two lines of the log; 0: none.
    StepRecorder(const Scheduler& scheduler, const RequestQueue& queue, const Model& model,
                 size_t draft_cache_bytes, size_t interval);

    /// To be called whenever blocks were taken or given back.
    void count_blocks();
    /// To be called after a step. Returns a line for the log, if one is due.
    std::string record(const StepStatistics& step);

    size_t num_steps() const { return m_statistics.num_steps; }  ///< the step loop's to ask
    PipelineStatistics statistics() const;

private:
    const Scheduler& m_scheduler;
    const RequestQueue& m_queue;
    const size_t m_interval;

    mutable std::mutex m_mutex;  // guards what follows
    PipelineStatistics m_statistics;
    std::vector<size_t> m_used;  // blocks, of the last steps; a ring
    size_t m_sum_used = 0;       // of the ring
};

}  // namespace pagewheel
