#include "base/log.hpp"

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
struct Log {
    std::mutex mutex;
    SharedCallback callback;
};

// Never destroyed: threads may have something to say while the process ends, and the callback may
// be of a runtime that has ended then.
extern Log& process_log;
Log& process_log = *[] {
    // A child is made while no other thread has the lock, or it would find it locked for ever.
    const auto unlock = [] { process_log.mutex.unlock(); };
    pthread_atfork([] { process_log.mutex.lock(); }, unlock, unlock);
    return new Log();
}();

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
    SharedCallback shared;  // then the old one, which is destroyed without the lock
    if (callback) shared = std::make_shared<const LogCallback>(std::move(callback));
    const std::lock_guard lock(process_log.mutex);
    process_log.callback.swap(shared);
}

void log(LogLevel level, const std::string& text) noexcept {
    try {
        SharedCallback callback;
        {
            const std::lock_guard lock(process_log.mutex);
            callback = process_log.callback;
        }
        if (!callback || !call(*callback, level, text)) write_to_stderr(level, text);
    } catch (...) {  // no memory for it
    }
}

}  // namespace pagewheel
