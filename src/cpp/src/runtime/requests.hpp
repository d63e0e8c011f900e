// Requests on their way to the step loop, and from phase to phase within it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/process.hpp"
#include "runtime/admission.hpp"
#include "runtime/output.hpp"
#include "runtime/request.hpp"
#include "scheduling/scheduler.hpp"

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

    /// Takes at most `max_queue` requests that were not begun; 0: any number.
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
    /// The request is over, and its id, if the caller gave one, may be used again.
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

/// While an object lives, its thread has a role for an engine, which `queue` stands for. Callbacks
/// of the caller's run on such threads and may call anything; calls that would wait for their own
/// thread find out here. Objects nest.
class ThreadRole {
public:
    enum class Kind {
        STEP,  ///< makes a step and holds its lock: eviction policies and logits processors may be
               ///< asked
        CALLER,   ///< in step() or generate() without the lock: streamers and callbacks run
        SERVICE,  ///< the thread of start(): the same for all that it does
    };

    ThreadRole(const RequestQueue& queue, Kind kind)
        : m_queue(queue), m_kind(kind), m_outer(current()) {
        current() = this;
    }
    ~ThreadRole() { current() = m_outer; }
    ThreadRole(const ThreadRole&) = delete;
    ThreadRole& operator=(const ThreadRole&) = delete;

    /// Whether the calling thread is in this role, whatever others it took since.
    static bool is(const RequestQueue& queue, Kind kind) {
        for (const ThreadRole* role = current(); role; role = role->m_outer)
            if (&role->m_queue == &queue && role->m_kind == kind) return true;
        return false;
    }

    /// Whether the calling thread is in this role for any engine.
    static bool is_any(Kind kind) {
        for (const ThreadRole* role = current(); role; role = role->m_outer)
            if (role->m_kind == kind) return true;
        return false;
    }

private:
    static const ThreadRole*& current() {
        static thread_local const ThreadRole* innermost = nullptr;
        return innermost;
    }

    const RequestQueue& m_queue;
    const Kind m_kind;
    const ThreadRole* const m_outer;
};

/// How a request ends.
struct FinishInfo {
    GenerationStatus status = GenerationStatus::FINISHED;
    /// The reason of the sequences that it ends.
    GenerationFinishReason reason = GenerationFinishReason::NONE;
    std::optional<Error> error = {};
    /// Nothing that its latest step was to write can be trusted: it enters no prefix.
    bool discards = false;
};

/// Owns the requests, and alone moves each from phase to phase. Under the step's lock.
class Requests {
public:
    Requests(RequestQueue& queue, Scheduler& scheduler, const Admission& admission, Output& output)
        : m_queue(queue), m_scheduler(scheduler), m_admission(admission), m_output(output) {}

    /// Takes over a request from the queue. Its first sequence waits from now on.
    void accept(std::unique_ptr<Request>&& request);
    /// The request's first tokens are about to be computed.
    void begin(Request& request);
    /// A sequence has its last token; with the last of them the request is over.
    void finish(SequenceState& sequence);
    /// Ends the request, whose blocks are free then. The object stays until forget_ended().
    void end(Request& request, const FinishInfo& info);
    /// Ends the requests whose deadline has passed.
    void end_expired(Clock::time_point now);
    void forget_ended();
    /// Ends all of them with the error, without asking their scheduler: nothing can be trusted.
    void fail(const std::string& error) noexcept;
    /// Ends a request that was not accepted in the same way.
    void fail(Request& request, const std::string& error) noexcept;

    const std::vector<std::unique_ptr<Request>>& all() const { return m_requests; }

private:
    void move(Request& request, Request::Phase to);

    RequestQueue& m_queue;
    Scheduler& m_scheduler;
    const Admission& m_admission;
    Output& m_output;
    std::vector<std::unique_ptr<Request>> m_requests;
    std::vector<Request*> m_ended;  // of them, to be forgotten
    std::set<std::pair<Clock::time_point, Request*>> m_deadlines;
};

}  // namespace pagewheel
