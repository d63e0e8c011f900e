#include "grammar/late_thread.hpp"

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>

#include "base/process.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel {

/// Shared with the threads that run late.
struct LateThreads::State {
    std::mutex mutex;
    std::condition_variable done;
    size_t late_count = 0;
    size_t stack_bytes, most_late;
};

namespace {

/// One call of run(): of the caller and the thread.
struct Call {
    std::function<void()> work;
    std::shared_ptr<std::atomic<pid_t>> thread;  // its number
    std::function<void(std::exception_ptr)> finish;
};

void* run_call(void* argument) {
    const std::unique_ptr<Call> call(static_cast<Call*>(argument));
    std::exception_ptr error;
    *call->thread = this_thread_number();
    try {
        call->work();
    } catch (...) {
        error = std::current_exception();
    }
    call->work = nullptr;  // what it holds goes before the caller knows of the end
    call->finish(error);
    return nullptr;
}

void start_detached(std::unique_ptr<Call> call, size_t stack_bytes) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, stack_bytes);
    pthread_t thread;
    const int error = pthread_create(&thread, &attributes, &run_call, call.get());
    pthread_attr_destroy(&attributes);
    if (error != 0) throw Error("cannot start a thread that compiles the grammar");
    call.release();
}

}  // namespace

LateThreads::LateThreads(size_t stack_bytes, size_t most_late)
    : m_state(std::make_shared<State>()) {
    m_state->stack_bytes = stack_bytes;
    m_state->most_late = most_late;
}

LateThreads::Result LateThreads::run(std::function<void()> work, std::chrono::milliseconds time) {
    struct Outcome {
        bool is_done = false, is_late = false;
        std::exception_ptr error;
    };
    const auto outcome = std::make_shared<Outcome>();
    const auto state = m_state;
    std::unique_lock<std::mutex> lock(state->mutex);
    if (state->late_count >= state->most_late) return Result::TOO_MANY_LATE;

    auto call = std::make_unique<Call>();
    call->work = std::move(work);
    call->thread = std::make_shared<std::atomic<pid_t>>(0);
    const auto thread = call->thread;
    call->finish = [state, outcome](std::exception_ptr error) {
        const std::lock_guard<std::mutex> inner_lock(state->mutex);
        outcome->is_done = true;
        outcome->error = std::move(error);
        if (outcome->is_late) --state->late_count;
        state->done.notify_all();
    };
    start_detached(std::move(call), state->stack_bytes);
    if (!state->done.wait_for(lock, time, [&] { return outcome->is_done; })) {
        outcome->is_late = true;
        ++state->late_count;
        if (*thread != 0) lower_priority(*thread);  // it runs: its end is told under the lock
        return Result::LATE;
    }
    if (outcome->error) std::rethrow_exception(outcome->error);
    return Result::DONE;
}

}  // namespace pagewheel
