#include "runtime/requests.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "pagewheel/continuous_batching_pipeline.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel {

void RequestQueue::submit(std::unique_ptr<Request> request) {
    const std::lock_guard lock(m_mutex);
    if (!m_failure.empty()) throw PipelineFailed(m_failure);
    const std::optional<uint64_t> id = request->id;
    check_argument(!id || m_ids.count(*id) == 0, ParameterName("request_id"), " ", id.value_or(0),
                   " is in use");
    if (m_max_queue != 0 && m_num_queued >= m_max_queue)
        throw QueueFull(concat(request->name(), " is refused: ", m_num_queued,
                               " requests wait already, and max_queue is ", m_max_queue));
    if (id) m_ids.insert(*id);
    ++m_num_requests;
    ++m_num_queued;
    m_contents.requests.push_back(std::move(request));
    m_work.notify_all();
}

void RequestQueue::abort(AbortRequest request) {
    const std::lock_guard lock(m_mutex);
    if (!m_closed) m_contents.aborts.push_back(std::move(request));
}

void RequestQueue::take(Contents& contents) {
    const std::lock_guard lock(m_mutex);
    if (contents.requests.empty()) contents.requests.swap(m_contents.requests);  // takes no memory
    for (auto& request : m_contents.requests) contents.requests.push_back(std::move(request));
    for (AbortRequest& abort : m_contents.aborts) contents.aborts.push_back(std::move(abort));
    m_contents.requests.clear();
    m_contents.aborts.clear();
}

void RequestQueue::left_queue() {
    const std::lock_guard lock(m_mutex);
    --m_num_queued;
}

void RequestQueue::forget(const Request& request) {
    const std::lock_guard lock(m_mutex);
    if (request.id) m_ids.erase(*request.id);
    --m_num_requests;
}

size_t RequestQueue::num_requests() const {
    const std::lock_guard lock(m_mutex);
    return m_num_requests;
}

size_t RequestQueue::num_queued() const {
    const std::lock_guard lock(m_mutex);
    return m_num_queued;
}

void RequestQueue::wait_for_work(const std::atomic<bool>& wanted) {
    std::unique_lock lock(m_mutex);
    m_work.wait(lock, [&] { return !wanted || m_num_requests > 0; });
}

void RequestQueue::wake() {
    const std::lock_guard lock(m_mutex);
    m_work.notify_all();
}

void RequestQueue::fail(const std::string& error) {
    const std::lock_guard lock(m_mutex);
    m_failure = error;
}

void RequestQueue::check_works() const {
    const std::lock_guard lock(m_mutex);
    if (!m_failure.empty()) throw PipelineFailed(m_failure);
}

void RequestQueue::close() {
    std::vector<AbortRequest>
        dropped;  // the last owners of what they name, perhaps: not under the lock
    const std::lock_guard lock(m_mutex);
    m_closed = true;
    m_contents.aborts.swap(dropped);
}

void Requests::accept(std::unique_ptr<Request>&& accepted) {
    m_requests.push_back(std::move(accepted));
    Request& request = *m_requests.back();
    request.place = m_requests.size() - 1;
    if (request.deadline) m_deadlines.emplace(*request.deadline, &request);
    if (const auto refusal = m_admission.limit_again(request))
        return end(request, {GenerationStatus::CANCEL, GenerationFinishReason::NONE, *refusal});
    m_scheduler.add(*request.sequences.front());
}

void Requests::move(Request& request, Request::Phase to) {
    check_invariant(request.phase < to, "a request goes from phase ", int(request.phase), " to ",
                    int(to));
    if (std::exchange(request.phase, to) == Request::Phase::QUEUED) m_queue.left_queue();
}

void Requests::begin(Request& request) {
    if (request.phase != Request::Phase::QUEUED) return;
    move(request, Request::Phase::BEGUN);
    m_output.time_queue(request);
}

void Requests::finish(SequenceState& sequence) {
    m_scheduler.remove(sequence);
    sequence.is_finished = true;
    Request& request = *sequence.request;
    const bool all = request.sequences.size() == request.state->outputs.size() &&
                     std::all_of(request.sequences.begin(), request.sequences.end(),
                                 [](const auto& other) { return other->is_finished; });
    if (all) end(request, {GenerationStatus::FINISHED});
}

void Requests::end(Request& request, const FinishInfo& info) {
    if (request.is_over()) return;
    move(request, Request::Phase::ENDED);
    for (auto& sequence : request.sequences)
        if (request.beams || info.discards)  // not each beam's last block, too
            m_scheduler.discard(*sequence);
        else
            m_scheduler.remove(*sequence);
    if (request.beams) m_output.publish_beams(request, m_admission.make_texts(request, 1));
    if (request.deadline) m_deadlines.erase({*request.deadline, &request});
    m_ended.push_back(&request);
    m_output.end(request, info.status, info.reason, info.error);
}

void Requests::end_expired(Clock::time_point now) {
    while (!m_deadlines.empty() && m_deadlines.begin()->first <= now)
        end(*m_deadlines.begin()->second, {GenerationStatus::TIMEOUT});
}

void Requests::forget_ended() {
    for (Request* request : m_ended) {
        m_queue.forget(*request);
        const size_t place = request->place;
        std::swap(m_requests[place], m_requests.back());
        m_requests[place]->place = place;
        m_requests.pop_back();
    }
    m_ended.clear();
}

void Requests::fail(const std::string& error) noexcept {
    for (const auto& request : m_requests) fail(*request, error);
    // The scheduler still points to their sequences, but is not asked any more.
    m_ended.clear();
    m_deadlines.clear();
    m_requests.clear();
}

void Requests::fail(Request& request, const std::string& error) noexcept {
    // What failed may have been memory, or end() before the handle was told.
    try {
        std::unique_lock lock(request.state->mutex);
        const bool is_told = request.state->is_over();
        request.state->pipeline_failed = !is_told;
        lock.unlock();
        if (!is_told)
            m_output.end(request, GenerationStatus::CANCEL, GenerationFinishReason::NONE,
                         Error(error, ErrorCode::engine_failed));
    } catch (...) {
        request.state->request = nullptr;
        const std::lock_guard lock(request.state->mutex);
        request.state->status = GenerationStatus::CANCEL;
        request.state->changed.notify_all();
    }
    if (!request.is_over()) move(request, Request::Phase::ENDED);
    m_queue.forget(request);
}

}  // namespace pagewheel
