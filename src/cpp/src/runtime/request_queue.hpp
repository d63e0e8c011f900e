// What other threads hand to the step loop.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/process_mark.hpp"
#include "runtime/request.hpp"

namespace pagewheel {

/// A handle asks that its request end.
struct AbortRequest {
    std::shared_ptr<GenerationHandle::State> state;
    GenerationStatus status;
    GenerationFinishReason reason;
};

/// Requests and aborts on their way to the step loop. Every method may be called from any thread.
/// Handles keep it alive when the engine is gone; it takes nothing in then.
class RequestQueue {
public:
    struct Contents {
        std::vector<std::unique_ptr<Request>> requests;
        std::vector<AbortRequest> aborts;
    };

    /// At most `max_queue` requests that were not begun; 0: any number.
    explicit RequestQueue(size_t max_queue) : m_max_queue(max_queue) {}

    /// Throws in a child that fork() made: before any other call.
    void check_process() const { m_process.check("pipeline"); }
    bool is_forked() const { return m_process.is_forked(); }

    /// Throws InvalidArgument if the id is in use, QueueFull if the queue is full, PipelineFailed
    /// after fail().
    void submit(std::unique_ptr<Request> request);
    void abort(AbortRequest request);
    /// Appends what has come since the last time.
    void take(Contents& contents);

    /// A request left the queue: it was begun, or ended before.
    void left_queue();
    /// It is over, and its id, if the caller gave one, may be used again.
    void forget(const Request& request);

    size_t num_requests() const;
    size_t num_queued() const;
    /// Waits until there is a request or `wanted` is false. Call wake() after setting it.
    void wait_for_work(const std::atomic<bool>& wanted);
    void wake();
    /// submit() throws PipelineFailed with this from now on, and check_works() does.
    void fail(const std::string& error);
    void check_works() const;
    /// The engine ends: what comes from now on is dropped.
    void close();

    /// How a handle's owner makes a step; false where the engine is gone. Set before requests come.
    void set_step(std::function<bool()> step) { m_step = std::move(step); }
    bool step() const { return m_step && m_step(); }

    /// Whether a thread of the pipeline's own steps.
    bool is_served() const { return m_served; }
    void set_served(bool served) { m_served = served; }

private:
    const ProcessMark m_process;
    mutable std::mutex m_mutex;
    std::condition_variable m_work;
    const size_t m_max_queue;
    std::function<bool()> m_step;
    size_t m_num_queued = 0;
    size_t m_num_requests = 0;           // that are not over
    std::unordered_set<uint64_t> m_ids;  // given by callers, of requests that are not over
    Contents m_contents;
    bool m_closed = false;
    std::string m_failure;  // why nothing is taken in any more
    std::atomic<bool> m_served{false};
};

}  // namespace pagewheel
