#include "runtime/engine_thread.hpp"

#include <condition_variable>
#include <utility>

#include "runtime/requests.hpp"

namespace pagewheel {
namespace {

/// Counts threads that were detached: the program must not end while one of them still runs.
class DetachedThreads {
public:
    ~DetachedThreads() { wait(std::chrono::seconds(5)); }
    /// Counts a thread until its copies are gone.
    std::shared_ptr<void> enter() {
        const std::lock_guard lock(m_mutex);
        ++m_count;
        return {this, [](DetachedThreads* self) { self->leave(); }};
    }
    void wait(std::chrono::milliseconds at_most) {
        if (m_process.is_forked()) return;
        std::unique_lock lock(m_mutex);
        m_none.wait_for(lock, at_most, [&] { return m_count == 0; });
    }

private:
    void leave() {
        const std::lock_guard lock(m_mutex);
        if (--m_count == 0) m_none.notify_all();
    }

    const ProcessMark m_process;
    std::mutex m_mutex;
    std::condition_variable m_none;
    size_t m_count = 0;
};

DetachedThreads detached_threads;

void serve(std::shared_ptr<Engine> engine, const std::atomic<bool>& wanted) {
    const ThreadRole role(engine->request_queue(), ThreadRole::Kind::SERVICE);
    while (wanted && !engine->request_queue().is_forked()) {
        engine->request_queue().wait_for_work(wanted);
        if (!wanted) return;
        try {
            engine->step();
        } catch (...) {  // the handles of the requests in question tell
        }
    }
}

}  // namespace

void EngineThread::start() {
    m_engine->request_queue().check_process();
    const std::lock_guard lock(m_mutex);
    if (m_service.control) return;
    const auto control = std::make_shared<Control>();
    m_service.thread = std::thread(
        [engine = m_engine, control]() mutable { serve(std::move(engine), control->wanted); });
    m_service.control = control;
    m_engine->request_queue().set_served(true);
}

void EngineThread::stop() {
    RequestQueue& queue = m_engine->request_queue();
    if (queue.is_forked()) return;
    Service ending;
    {
        const std::lock_guard lock(m_mutex);
        if (!m_service.control) return;
        m_service.control->wanted = false;
        ending = std::exchange(m_service, {});
        queue.set_served(false);
    }
    queue.wake();
    // The role counts for any pipeline: two threads whose callbacks stop each other would both
    // wait.
    using Kind = ThreadRole::Kind;
    if (!ThreadRole::is_any(Kind::SERVICE) && !ThreadRole::is_any(Kind::STEP))
        return ending.thread.join();
    ending.control->counted = detached_threads.enter();
    ending.thread.detach();
}

bool EngineThread::is_running() const {
    const std::lock_guard lock(m_mutex);
    return bool(m_service.control);
}

void EngineThread::wait_for_stopped(std::chrono::milliseconds at_most) {
    detached_threads.wait(at_most);
}

}  // namespace pagewheel
