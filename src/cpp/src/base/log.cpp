#include "log.hpp"

#include <pthread.h>

#include <iostream>
#include <memory>
#include <mutex>
#include <utility>

namespace pagewheel {
namespace {

using SharedCallback = std::shared_ptr<const LogCallback>;

/// The callback, for all threads. Its lock is held for no longer than a pointer is copied, and
/// never while anything of the user's runs, a destructor included.
class Log {
public:
    Log() {
        // A child is made while no other thread has the lock, or it would find it locked for ever.
        pthread_atfork(lock, unlock, unlock);
    }

    SharedCallback callback() {
        const std::lock_guard lock(m_mutex);
        return m_callback;
    }
    void set_callback(SharedCallback callback) {
        const std::lock_guard lock(m_mutex);
        m_callback.swap(callback);  // the old one is destroyed by the caller, without the lock
    }

private:
    static void lock();
    static void unlock();

    std::mutex m_mutex;
    SharedCallback m_callback;
};

// Never destroyed: threads may have something to say while the process ends, and the callback may
// be of a runtime that has ended then.
Log& process_log = *new Log();

void Log::lock() {
    process_log.m_mutex.lock();
}
void Log::unlock() {
    process_log.m_mutex.unlock();
}

void write_to_stderr(LogLevel level, const std::string& text) {
    const char* prefix = level == LogLevel::WARNING ? "pagewheel warning: " : "pagewheel ";
    std::cerr << prefix + text + "\n";  // at once, so that lines of several threads stay whole
}

/// True if the callback has the message.
bool call(const LogCallback& callback, LogLevel level, const std::string& text) {
    thread_local bool is_inside = false;
    if (is_inside) return false;
    struct Inside {
        Inside() { is_inside = true; }
        ~Inside() { is_inside = false; }
    } const inside;
    try {
        callback(level, text);
        return true;
    } catch (...) {
        return false;
    }
}

}  // namespace

void set_log_callback(LogCallback callback) {
    process_log.set_callback(callback ? std::make_shared<const LogCallback>(std::move(callback))
                                      : nullptr);
}

void log(LogLevel level, const std::string& text) noexcept {
    try {
        const SharedCallback callback = process_log.callback();
        if (!callback || !call(*callback, level, text)) write_to_stderr(level, text);
    } catch (...) {  // no memory for it
    }
}

}  // namespace pagewheel
