#include "runtime/inbox.hpp"

#include <utility>

#include "check.hpp"
#include "pagewheel/continuous_batching_pipeline.hpp"

namespace pagewheel {

void Inbox::submit(std::unique_ptr<Request> request) {
    const std::lock_guard lock(m_mutex);
    check_argument(m_ids.count(request->id) == 0, "request_id ", request->id, " is in use");
    if (m_max_queue != 0 && m_num_queued >= m_max_queue)
        throw QueueFull(concat("request ", request->id, " is refused: ", m_num_queued,
                               " requests wait already, and max_queue is ", m_max_queue));
    m_ids.insert(request->id);
    ++m_num_queued;
    m_requests.push_back(std::move(request));
    m_work.notify_all();
}

void Inbox::wish(Wish wish) {
    const std::lock_guard lock(m_mutex);
    m_wishes.push_back(std::move(wish));
}

void Inbox::take(std::vector<std::unique_ptr<Request>>& requests, std::vector<Wish>& wishes) {
    const std::lock_guard lock(m_mutex);
    for (auto& request : m_requests) requests.push_back(std::move(request));
    for (Wish& wish : m_wishes) wishes.push_back(std::move(wish));
    m_requests.clear();
    m_wishes.clear();
}

void Inbox::left_queue() {
    const std::lock_guard lock(m_mutex);
    --m_num_queued;
}

void Inbox::forget(uint64_t id) {
    const std::lock_guard lock(m_mutex);
    m_ids.erase(id);
}

size_t Inbox::num_requests() const {
    const std::lock_guard lock(m_mutex);
    return m_ids.size();
}

size_t Inbox::num_queued() const {
    const std::lock_guard lock(m_mutex);
    return m_num_queued;
}

void Inbox::wait_for_work() {
    std::unique_lock lock(m_mutex);
    m_work.wait(lock, [&] { return m_closed || !m_ids.empty(); });
}

void Inbox::close() {
    const std::lock_guard lock(m_mutex);
    m_closed = true;
    m_work.notify_all();
}

void Inbox::open() {
    const std::lock_guard lock(m_mutex);
    m_closed = false;
}

}  // namespace pagewheel
