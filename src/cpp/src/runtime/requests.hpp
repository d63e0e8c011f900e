// The requests that are being worked on.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/admission.hpp"
#include "runtime/output.hpp"
#include "runtime/request.hpp"
#include "runtime/request_queue.hpp"
#include "scheduling/scheduler.hpp"

namespace pagewheel {

/// How a request ends.
struct FinishInfo {
    GenerationStatus status = GenerationStatus::FINISHED;
    /// Of the sequences that it ends.
    GenerationFinishReason reason = GenerationFinishReason::NONE;
    std::optional<Error> error = {};
    /// Nothing that its latest step was to write can be trusted: it enters no prefix.
    bool discards = false;
};

/// Owns them, and moves each from phase to phase: here alone. Under the step's lock.
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
    /// Its blocks are free. The object stays until forget_ended().
    void end(Request& request, const FinishInfo& info);
    /// Those whose deadline has passed.
    void end_expired();
    void forget_ended();
    /// All of them, with the error, and their scheduler is not asked: nothing can be trusted.
    void fail(const std::string& error) noexcept;
    /// The same for one that was not accepted.
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
