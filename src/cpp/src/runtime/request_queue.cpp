#include "runtime/request_queue.hpp"

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

}  // namespace pagewheel
