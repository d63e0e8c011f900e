// A thread that steps, so that callers need not.
#pragma once

#include <atomic>
#include <mutex>
#include <thread>

#include "runtime/engine.hpp"

namespace pagewheel {

/// Steps an engine whenever it has requests. A step that fails cancels the requests of its batch,
/// whose handles tell why; the thread goes on.
class Stepper {
public:
    explicit Stepper(Engine& engine) : m_engine(engine) {}
    ~Stepper() { stop(); }

    void start();
    /// After the step that is under way. Requests stay as they are.
    void stop();
    bool is_running() const { return m_wanted; }

private:
    Engine& m_engine;
    std::mutex m_mutex;  // of start() and stop()
    std::atomic<bool> m_wanted{false};
    std::thread m_thread;
};

}  // namespace pagewheel
