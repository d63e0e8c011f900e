// Where a region's time goes, for who asks.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <vector>

namespace pagewheel {

/// Adds up the time of each of a region's steps while it is switched on; off, it costs a look.
class RegionProfile {
public:
    using Clock = std::chrono::steady_clock;

    explicit RegionProfile(size_t num_steps) : m_times(num_steps) {}

    void switch_on() { m_on.store(true, std::memory_order_relaxed); }
    bool is_on() const { return m_on.load(std::memory_order_relaxed); }

    void add(size_t step, Clock::duration time) {
        const std::lock_guard lock(m_mutex);
        m_times[step] += time;
    }
    void end_call() {
        const std::lock_guard lock(m_mutex);
        ++m_calls;
    }

    /// Mean of all calls so far, by step; empty if there was none.
    std::vector<Clock::duration> means() const {
        const std::lock_guard lock(m_mutex);
        if (m_calls == 0) return {};
        std::vector<Clock::duration> means;
        for (const Clock::duration time : m_times) means.push_back(time / m_calls);
        return means;
    }

private:
    std::atomic<bool> m_on{false};
    mutable std::mutex m_mutex;
    std::vector<Clock::duration> m_times;
    long m_calls = 0;
};

}  // namespace pagewheel
