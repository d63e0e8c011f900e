// What other threads hand to the step loop.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "runtime/request.hpp"

namespace pagewheel {

/// A handle's wish that its request end.
struct Wish {
    std::shared_ptr<GenerationHandle::State> state;
    GenerationStatus status;
    GenerationFinishReason reason;
};

/// Requests and wishes on their way to the step loop. Every method may be called from any thread.
class Inbox {
public:
    /// At most `max_queue` requests that were not begun; 0: any number.
    explicit Inbox(size_t max_queue) : m_max_queue(max_queue) {}

    /// Throws std::invalid_argument if the id is in use, QueueFull if the queue is.
    void submit(std::unique_ptr<Request> request);
    void wish(Wish wish);
    /// Appends what has come since the last time.
    void take(std::vector<std::unique_ptr<Request>>& requests, std::vector<Wish>& wishes);

    /// A request left the queue: it was begun, or ended before.
    void left_queue();
    /// Its id may be used again.
    void forget(uint64_t id);

    size_t num_requests() const;
    size_t num_queued() const;
    /// Until there is a request, or close().
    void wait_for_work();
    /// wait_for_work() does not wait from now on, until open().
    void close();
    void open();

private:
    mutable std::mutex m_mutex;
    std::condition_variable m_work;
    const size_t m_max_queue;
    size_t m_num_queued = 0;
    std::unordered_set<uint64_t> m_ids;  // of all requests that are not over
    std::vector<std::unique_ptr<Request>> m_requests;
    std::vector<Wish> m_wishes;
    bool m_closed = false;
};

}  // namespace pagewheel
