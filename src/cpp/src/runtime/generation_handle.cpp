#include "pagewheel/generation_handle.hpp"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "runtime/handle_state.hpp"
#include "runtime/inbox.hpp"
#include "runtime/thread_role.hpp"

namespace pagewheel {
namespace {

/// All but its text.
GenerationOutput take_unread(SequenceOutput& sequence) {
    const GenerationOutput& all = sequence.all;
    const auto end = ptrdiff_t(all.generated_ids.size());
    const auto begin = ptrdiff_t(std::exchange(sequence.num_read, size_t(end)));
    GenerationOutput output;
    output.generated_ids.assign(all.generated_ids.begin() + begin, all.generated_ids.end());
    output.generated_log_probs.assign(all.generated_log_probs.begin() + begin,
                                      all.generated_log_probs.begin() + end);
    output.score = all.score;
    output.finish_reason = all.finish_reason;
    return output;
}

/// What texts are to be brought up to date with.
struct Undecoded {
    std::vector<int64_t> tokens;
    bool is_last;
};

/// Needs both locks.
std::vector<Undecoded> undecoded(const GenerationHandle::State& state) {
    std::vector<Undecoded> all;
    for (size_t i = 0; i < state.outputs.size(); ++i) {
        const std::vector<int64_t>& ids = state.outputs[i].all.generated_ids;
        // Where a step failed between the two, the text is ahead.
        const size_t num_decoded = std::min(state.texts[i].num_decoded(), ids.size());
        const auto begin = ids.begin() + ptrdiff_t(num_decoded);
        all.push_back({{begin, ids.end()}, state.is_over(i)});
    }
    return all;
}

/// Needs the lock of the texts.
void decode(GenerationHandle::State& state, const std::vector<Undecoded>& all) {
    for (size_t i = 0; i < all.size(); ++i)
        if (all[i].is_last)
            state.texts[i].end_with(all[i].tokens);
        else
            state.texts[i].append(all[i].tokens);
}

}  // namespace

std::unique_lock<std::mutex> GenerationHandle::State::lock() const {
    inbox->check_process();
    return std::unique_lock(mutex);
}

std::unique_lock<std::mutex> GenerationHandle::State::lock_texts() const {
    inbox->check_process();
    return std::unique_lock(text_mutex);
}

bool GenerationHandle::State::can_read() const {
    for (size_t i = 0; i < outputs.size(); ++i)
        if (outputs[i].num_read < outputs[i].all.generated_ids.size() ||
            (outputs[i].owes_text && is_over(i)))
            return true;
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

GenerationOutputs GenerationHandle::read(bool with_text) {
    State& state = *m_state;
    const auto text_lock = with_text ? state.lock_texts() : std::unique_lock<std::mutex>();
    auto lock = state.lock();
    GenerationOutputs fresh;
    for (size_t i = 0; i < state.outputs.size(); ++i) {
        SequenceOutput& sequence = state.outputs[i];
        sequence.owes_text = with_text && !state.is_over(i);
        if (with_text || sequence.num_read < sequence.all.generated_ids.size())
            fresh[i] = take_unread(sequence);
    }
    const std::string error = state.error;
    const auto news = with_text ? undecoded(state) : std::vector<Undecoded>();
    lock.unlock();
    try {
        decode(state, news);
    } catch (...) {  // nothing was read
        lock.lock();
        for (const auto& [i, output] : fresh)
            state.outputs[i].num_read -= output.generated_ids.size();
        throw;
    }
    for (auto at = fresh.begin(); with_text && at != fresh.end();) {
        at->second.text = state.texts[at->first].take();
        const bool is_empty = at->second.text.empty() && at->second.generated_ids.empty();
        at = is_empty ? fresh.erase(at) : std::next(at);
    }
    if (fresh.empty() && !error.empty()) throw std::runtime_error(error);
    return fresh;
}

std::vector<GenerationOutput> GenerationHandle::read_all(bool with_text) const {
    State& state = *m_state;
    const auto text_lock = with_text ? state.lock_texts() : std::unique_lock<std::mutex>();
    auto lock = state.lock();
    if (!state.error.empty()) throw std::runtime_error(state.error);
    std::vector<GenerationOutput> all;
    for (const SequenceOutput& sequence : state.outputs) all.push_back(sequence.all);
    const auto news = with_text ? undecoded(state) : std::vector<Undecoded>();
    lock.unlock();
    decode(state, news);
    for (size_t i = 0; i < news.size(); ++i) all[i].text = state.texts[i].text();
    return all;
}

bool GenerationHandle::wait(std::chrono::microseconds timeout) const {
    auto lock = m_state->lock();
    const auto is_done = [&] { return m_state->can_read() || m_state->is_over(); };
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
        if (!m_state->can_read() && !m_state->is_over()) {
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
    const auto text_lock = m_state->lock_texts();
    const auto lock = m_state->lock();
    for (size_t i = 0; i < m_state->outputs.size(); ++i) {
        SequenceOutput& sequence = m_state->outputs[i];
        sequence.num_read = sequence.all.generated_ids.size();
        sequence.owes_text = false;
        m_state->texts[i].skip(sequence.num_read);
    }
}

PerfMetrics GenerationHandle::get_perf_metrics() const {
    const auto lock = m_state->lock();
    return m_state->metrics;
}

}  // namespace pagewheel
