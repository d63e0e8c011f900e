#include "pagewheel/generation_handle.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "runtime/inbox.hpp"
#include "runtime/thread_role.hpp"

namespace pagewheel {
namespace {

bool is_over(const GenerationHandle::State& state) {
    return state.status != GenerationStatus::RUNNING;
}

}  // namespace

std::unique_lock<std::mutex> GenerationHandle::State::lock() const {
    inbox->check_process();
    return std::unique_lock(mutex);
}

bool GenerationHandle::State::can_read() const {
    for (size_t i = 0; i < outputs.size(); ++i)
        if (num_read[i] < outputs[i].generated_ids.size()) return true;
    return false;
}

void GenerationHandle::State::wake() {
    std::vector<std::function<void()>> callbacks;
    {
        const std::lock_guard lock(mutex);
        callbacks.swap(on_change);
    }
    changed.notify_all();
    std::exception_ptr failure;
    for (const auto& callback : callbacks) {
        try {
            callback();
        } catch (...) {
            if (!failure) failure = std::current_exception();
        }
    }
    if (failure) std::rethrow_exception(failure);
}

GenerationHandle::GenerationHandle(std::shared_ptr<State> state) : m_state(std::move(state)) {}

GenerationStatus GenerationHandle::get_status() const {
    const auto lock = m_state->lock();
    return m_state->status;
}

bool GenerationHandle::can_read() const {
    const auto lock = m_state->lock();
    return m_state->can_read();
}

GenerationOutputs GenerationHandle::read() {
    const auto lock = m_state->lock();
    GenerationOutputs fresh;
    for (size_t i = 0; i < m_state->outputs.size(); ++i) {
        const GenerationOutput& all = m_state->outputs[i];
        const size_t begin = std::exchange(m_state->num_read[i], all.generated_ids.size());
        if (begin == all.generated_ids.size()) continue;
        GenerationOutput& output = fresh[i];
        output.generated_ids.assign(all.generated_ids.begin() + begin, all.generated_ids.end());
        output.generated_log_probs.assign(all.generated_log_probs.begin() + begin,
                                          all.generated_log_probs.end());
        output.score = all.score;
        output.finish_reason = all.finish_reason;
    }
    if (fresh.empty() && !m_state->error.empty()) throw std::runtime_error(m_state->error);
    return fresh;
}

std::vector<GenerationOutput> GenerationHandle::read_all() const {
    const auto lock = m_state->lock();
    if (!m_state->error.empty()) throw std::runtime_error(m_state->error);
    return m_state->outputs;
}

bool GenerationHandle::wait(std::chrono::microseconds timeout) const {
    auto lock = m_state->lock();
    const auto is_done = [&] { return m_state->can_read() || is_over(*m_state); };
    if (is_done() || timeout <= timeout.zero()) return is_done();
    if (!can_wait())
        throw std::runtime_error(
            "wait() in a callback would wait for the thread that it is called from: nothing is "
            "there to read, and no other thread is known to step");
    return m_state->changed.wait_for(
        lock, std::min<std::chrono::microseconds>(timeout, longest_wait), is_done);
}

bool GenerationHandle::can_wait() const {
    using Kind = ThreadRole::Kind;
    const Inbox& inbox = *m_state->inbox;
    if (ThreadRole::is(inbox, Kind::STEP) || ThreadRole::is(inbox, Kind::SERVICE)) return false;
    return inbox.is_served() || !ThreadRole::is(inbox, Kind::CALLER);
}

void GenerationHandle::notify_once(std::function<void()> callback) {
    {
        const auto lock = m_state->lock();
        if (!m_state->can_read() && !is_over(*m_state)) {
            m_state->on_change.push_back(std::move(callback));
            return;
        }
    }
    callback();
}

void GenerationHandle::stop(GenerationFinishReason reason) {
    if (get_status() != GenerationStatus::RUNNING) return;
    m_state->inbox->wish({m_state, GenerationStatus::STOP, reason});
}
void GenerationHandle::cancel() {
    if (get_status() != GenerationStatus::RUNNING) return;
    m_state->inbox->wish({m_state, GenerationStatus::CANCEL, GenerationFinishReason::NONE});
}

void GenerationHandle::drop() {
    cancel();
    const auto lock = m_state->lock();
    for (size_t i = 0; i < m_state->outputs.size(); ++i)
        m_state->num_read[i] = m_state->outputs[i].generated_ids.size();
}

PerfMetrics GenerationHandle::get_perf_metrics() const {
    const auto lock = m_state->lock();
    return m_state->metrics;
}

}  // namespace pagewheel
