#include "runtime/stepper.hpp"

#include <condition_variable>
#include <utility>

#include "runtime/thread_role.hpp"

namespace pagewheel {
namespace {

/// All there are, since a program must not end under one that nobody could join.
class ServiceThreads {
public:
    ~ServiceThreads() { wait(std::chrono::seconds(5)); }
    /// Counts a thread until its copies are gone.
    std::shared_ptr<void> enter() {
        const std::lock_guard lock(m_mutex);
        ++m_count;
        return {this, [](ServiceThreads* self) { self->leave(); }};
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

ServiceThreads service_threads;

void serve(std::shared_ptr<Engine> engine, const std::atomic<bool>& wanted) {
    const ThreadRole role(engine->inbox(), ThreadRole::Kind::SERVICE);
    while (wanted) {
        engine->inbox().wait_for_work(wanted);
        if (!wanted) return;
        try {
            engine->step();
        } catch (...) {  // the handles of the requests in question tell
        }
    }
}

}  // namespace

void Stepper::start() {
    m_engine->inbox().check_process();
    const std::lock_guard lock(m_mutex);
    if (m_service.wanted) return;
    const auto wanted = std::make_shared<std::atomic<bool>>(true);
    m_service.thread =
        std::thread([engine = m_engine, wanted, counted = service_threads.enter()]() mutable {
            serve(std::move(engine), *wanted);
        });
    m_service.wanted = wanted;
    m_engine->inbox().set_served(true);
}

void Stepper::stop() {
    Inbox& inbox = m_engine->inbox();
    if (inbox.is_forked()) return;
    Service ending;
    {
        const std::lock_guard lock(m_mutex);
        if (!m_service.wanted) return;
        *m_service.wanted = false;
        ending = std::exchange(m_service, {});
        inbox.set_served(false);
    }
    inbox.wake();
    using Kind = ThreadRole::Kind;
    if (ThreadRole::is(inbox, Kind::SERVICE) || ThreadRole::is(inbox, Kind::STEP))
        ending.thread.detach();
    else
        ending.thread.join();
}

bool Stepper::is_running() const {
    const std::lock_guard lock(m_mutex);
    return bool(m_service.wanted);
}

void Stepper::wait_for_last(std::chrono::milliseconds at_most) {
    service_threads.wait(at_most);
}

}  // namespace pagewheel
