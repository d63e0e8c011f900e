// A thread that steps, so that callers need not.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>

#include "runtime/engine.hpp"

namespace pagewheel {

/// Steps an engine whenever it has requests. A step that fails cancels the requests of its batch,
/// whose handles tell why; the thread goes on. Every method may be called from any thread, from
/// callbacks on the one that steps too, where stop() and the destructor cannot wait for it: it then
/// ends after the step under way, and keeps the engine until it has.
class EngineThread {
public:
    explicit EngineThread(std::shared_ptr<Engine> engine) : m_engine(std::move(engine)) {}
    ~EngineThread() { stop(); }

    void start();
    /// Stops after the step that is under way. Requests stay as they are. Does nothing in a child
    /// that fork() made, where the thread is not.
    void stop();
    bool is_running() const;

    /// Waits for threads that were stopped by their own callbacks, at most so long.
    static void wait_for_stopped(std::chrono::milliseconds at_most);

private:
    /// Belongs to the thread, which may outlive this object.
    struct Control {
        std::atomic<bool> wanted{true};  // turns false once
        std::shared_ptr<void> counted;   // where nobody can join it
    };
    struct Service {
        std::shared_ptr<Control> control;
        std::thread thread;
    };

    const std::shared_ptr<Engine> m_engine;
    mutable std::mutex m_mutex;  // guards what follows
    Service m_service;           // without a thread: none
};

}  // namespace pagewheel
