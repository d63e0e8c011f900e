#include "grammar/late_thread.hpp"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "base/process.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel {
namespace {

/// One call of run(): of the caller and the thread.
struct Call {
    std::function<void()> work;
    std::promise<void> end;
    std::mutex mutex;
    pid_t thread = 0;  // its number, while it runs
};

void* run_call(void* argument) {
    const std::unique_ptr<std::shared_ptr<Call>> given(
        static_cast<std::shared_ptr<Call>*>(argument));
    Call& call = **given;
    const auto set_thread = [&](pid_t number) {
        const std::lock_guard<std::mutex> lock(call.mutex);
        call.thread = number;
    };
    std::exception_ptr error;
    set_thread(this_thread_number());
    try {
        call.work();
    } catch (...) {
        error = std::current_exception();
    }
    set_thread(0);
    call.work = nullptr;  // what it holds goes before the caller knows of the end
    error ? call.end.set_exception(error) : call.end.set_value();
    return nullptr;
}

void start_detached(const std::shared_ptr<Call>& call, size_t stack_bytes) {
    auto argument = std::make_unique<std::shared_ptr<Call>>(call);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, stack_bytes);
    pthread_t thread;
    const int error = pthread_create(&thread, &attributes, &run_call, argument.get());
    pthread_attr_destroy(&attributes);
    if (error != 0) throw Error("cannot start a thread that compiles the grammar");
    argument.release();
}

bool has_ended(const std::future<void>& end, std::chrono::milliseconds time = {}) {
    return end.wait_for(time) == std::future_status::ready;
}

}  // namespace

LateThreads::Result LateThreads::run(std::function<void()> work, std::chrono::milliseconds time) {
    {
        const std::lock_guard<std::mutex> lock(m_mutex);
        const auto ended = [](const std::future<void>& each) { return has_ended(each); };
        m_late.erase(std::remove_if(m_late.begin(), m_late.end(), ended), m_late.end());
        if (m_late.size() >= m_most_late) return Result::TOO_MANY_LATE;
    }
    const auto call = std::make_shared<Call>();
    call->work = std::move(work);
    std::future<void> end = call->end.get_future();
    start_detached(call, m_stack_bytes);
    if (has_ended(end, time)) {
        end.get();
        return Result::DONE;
    }
    const std::lock_guard<std::mutex> lock(m_mutex);
    m_late.push_back(std::move(end));
    const std::lock_guard<std::mutex> call_lock(call->mutex);
    if (call->thread != 0) lower_priority(call->thread);
    return Result::LATE;
}

}  // namespace pagewheel
