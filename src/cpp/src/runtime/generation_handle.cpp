#include "pagewheel/generation_handle.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "pagewheel/errors.hpp"
#include "runtime/request.hpp"
#include "runtime/requests.hpp"

namespace pagewheel {
namespace {

/// What was not read of the first `end` tokens: all but the text. A reason to finish comes with or
/// after the last of them.
GenerationOutput take_unread(SequenceOutput& sequence, size_t end) {
    const GenerationOutput& all = sequence.all;
    const size_t begin = std::min(end, sequence.num_read);
    const auto part = [&](const auto& values) {
        return std::remove_const_t<std::remove_reference_t<decltype(values)>>(
            values.begin() + ptrdiff_t(begin), values.begin() + ptrdiff_t(end));
    };
    GenerationOutput output;
    output.generated_ids = part(all.generated_ids);
    output.generated_log_probs = part(all.generated_log_probs);
    if (!all.top_log_probs.empty()) output.top_log_probs = part(all.top_log_probs);
    output.score = all.score;
    if (begin == 0) {
        output.prompt_log_probs = all.prompt_log_probs;
        output.prompt_top_log_probs = all.prompt_top_log_probs;
    }
    sequence.num_read = std::max(sequence.num_read, end);
    if (end < all.generated_ids.size()) return output;
    output.finish_reason = sequence.told_reason = all.finish_reason;
    output.stop_reason = all.stop_reason;
    return output;
}

/// Gives the most likely tokens their bytes. Without the locks: it may take long.
void add_bytes(const GenerationHandle::State& state, GenerationOutput& output) {
    if (!state.token_bytes) return;
    for (auto* places : {&output.top_log_probs, &output.prompt_top_log_probs})
        for (std::vector<TokenLogProb>& place : *places)
            for (TokenLogProb& token : place) token.bytes = state.token_bytes(token.id);
}

/// Brings the texts up to date: what comes meanwhile is not waited for. Needs their lock. By
/// sequence, whether it was over before.
std::vector<bool> decode_new_tokens(GenerationHandle::State& state) {
    struct Undecoded {
        std::vector<int64_t> tokens;
        bool is_last;
    };
    std::vector<Undecoded> fresh;
    {
        const auto lock = state.lock();
        for (size_t i = 0; i < state.outputs.size(); ++i) {
            const std::vector<int64_t>& ids = state.outputs[i].all.generated_ids;
            // Where a step failed between the two, the text is ahead.
            const size_t begin = std::min(state.texts[i].num_decoded(), ids.size());
            fresh.push_back({{ids.begin() + ptrdiff_t(begin), ids.end()}, state.is_over(i)});
        }
    }
    std::vector<bool> were_over;
    for (size_t i = 0; i < fresh.size(); ++i) {
        were_over.push_back(fresh[i].is_last);
        if (fresh[i].is_last)
            state.texts[i].end_with(fresh[i].tokens);
        else
            state.texts[i].append(fresh[i].tokens);
    }
    return were_over;
}

}  // namespace

std::unique_lock<std::mutex> GenerationHandle::State::lock() const {
    queue->check_process();
    return std::unique_lock(mutex);
}

std::unique_lock<std::mutex> GenerationHandle::State::lock_texts() const {
    queue->check_process();
    return std::unique_lock(text_mutex);
}

bool GenerationHandle::State::can_read() const {
    for (size_t i = 0; i < outputs.size(); ++i) {
        const SequenceOutput& sequence = outputs[i];
        if (sequence.num_read < sequence.all.generated_ids.size() ||
            sequence.told_reason != sequence.all.finish_reason ||
            (sequence.owes_text && is_over(i)))
            return true;
    }
    return false;
}

void GenerationHandle::State::check_error() const {
    if (!is_over()) return;
    if (pipeline_failed) throw PipelineFailed(error ? error->what() : "out of memory");
    if (error) throw *error;
}

void GenerationHandle::State::wake() {
    std::vector<Waiter> due;
    {
        const std::lock_guard lock(mutex);
        const auto first_due = std::stable_partition(
            on_change.begin(), on_change.end(),
            [&](const Waiter& waiter) { return waiter.until == Until::END && !is_over(); });
        due.assign(std::make_move_iterator(first_due), std::make_move_iterator(on_change.end()));
        on_change.erase(first_due, on_change.end());
    }
    changed.notify_all();
    std::exception_ptr failure;
    for (const Waiter& waiter : due) {
        try {
            waiter.callback();
        } catch (...) {
            if (!failure) failure = std::current_exception();
        }
    }
    if (failure) std::rethrow_exception(failure);
}

GenerationHandle::GenerationHandle(std::shared_ptr<State> state) : m_state(std::move(state)) {}

std::vector<GenerationOutput> all_outputs(GenerationHandle::State& state, bool with_text) {
    const auto text_lock = with_text ? state.lock_texts() : std::unique_lock<std::mutex>();
    if (with_text) decode_new_tokens(state);
    auto lock = state.lock();
    std::vector<GenerationOutput> all;
    for (size_t i = 0; i < state.outputs.size(); ++i) {
        all.push_back(state.outputs[i].all);
        if (!with_text) continue;
        all.back().text = state.texts[i].text();
        all.back().num_text_tokens = state.texts[i].num_tokens();
    }
    lock.unlock();
    for (GenerationOutput& output : all) add_bytes(state, output);
    return all;
}

GenerationStatus GenerationHandle::get_status() const {
    const auto lock = m_state->lock();
    return m_state->is_over() ? m_state->status : m_state->closed_as.value_or(m_state->status);
}

bool GenerationHandle::can_read() const {
    const auto lock = m_state->lock();
    return !m_state->closed_as && m_state->can_read();
}

void GenerationHandle::check_open() const {
    const auto lock = m_state->lock();
    if (m_state->closed_as)
        throw Error(
            "the handle was stopped, cancelled or dropped: nothing can be read of it; "
            "read_available() gives what there is",
            ErrorCode::cancelled);
}

GenerationOutputs GenerationHandle::read_available(bool with_text) {
    State& state = *m_state;
    const auto text_lock = with_text ? state.lock_texts() : std::unique_lock<std::mutex>();
    const std::vector<bool> were_over = with_text ? decode_new_tokens(state) : std::vector<bool>();
    auto lock = state.lock();
    GenerationOutputs fresh;
    for (size_t i = 0; i < state.outputs.size(); ++i) {
        SequenceOutput& sequence = state.outputs[i];
        const size_t size = sequence.all.generated_ids.size(), num_read = sequence.num_read;
        const GenerationFinishReason told = sequence.told_reason;
        GenerationOutput output =
            take_unread(sequence, with_text ? std::min(size, state.texts[i].num_decoded()) : size);
        if (with_text) {
            output.text = state.texts[i].take();
            output.num_text_tokens = state.texts[i].num_tokens();
        }
        sequence.owes_text = with_text && !were_over[i];
        if (sequence.num_read > num_read || sequence.told_reason != told || !output.text.empty())
            fresh[i] = std::move(output);
    }
    if (fresh.empty()) state.check_error();
    lock.unlock();
    for (auto& [index, output] : fresh) add_bytes(state, output);
    return fresh;
}

std::vector<GenerationOutput> GenerationHandle::outputs_so_far(bool with_text) const {
    {
        const auto lock = m_state->lock();
        m_state->check_error();
    }
    return all_outputs(*m_state, with_text);
}

bool GenerationHandle::advance(Until until) {
    // A thread of start() tells; where it ends, somebody else has to step.
    constexpr std::chrono::milliseconds moment(20);
    RequestQueue& queue = *m_state->queue;
    {
        auto lock = m_state->lock();
        if (m_state->is_over() || m_state->closed_as) return false;
        if (until == Until::OUTPUT && m_state->can_read()) return false;
        if (queue.is_served() && !ThreadRole::is(queue, ThreadRole::Kind::SERVICE) &&
            !ThreadRole::is(queue, ThreadRole::Kind::STEP)) {
            m_state->changed.wait_for(lock, moment);
            return true;
        }
    }
    return queue.step();
}

GenerationOutputs GenerationHandle::read(bool with_text) {
    for (;;) {
        check_open();
        const bool advanced = advance(Until::OUTPUT);
        if (advanced && !can_read()) continue;
        GenerationOutputs outputs = read_available(with_text);
        if (!outputs.empty() || !advanced) return outputs;
    }
}

std::vector<GenerationOutput> GenerationHandle::read_all(bool with_text) {
    check_open();
    while (advance(Until::END)) {
    }
    check_open();
    std::vector<GenerationOutput> all;
    for (auto& [index, output] : read_available(with_text)) all.push_back(std::move(output));
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& a, const auto& b) { return a.score > b.score; });
    const auto lock = m_state->lock();
    m_state->check_error();
    return all;
}

bool GenerationHandle::wait(std::chrono::microseconds timeout) const {
    auto lock = m_state->lock();
    const auto is_done = [&] {
        return m_state->can_read() || m_state->is_over() || m_state->closed_as;
    };
    if (is_done() || timeout <= timeout.zero()) return is_done();
    if (!can_wait())
        throw Error(
            "wait() in a callback would wait for the thread that it is called from: nothing is "
            "there to read, and no other thread is known to step",
            ErrorCode::invalid_state);
    return m_state->changed.wait_for(
        lock, std::min<std::chrono::microseconds>(timeout, longest_wait), is_done);
}

bool GenerationHandle::can_wait() const {
    using Kind = ThreadRole::Kind;
    const RequestQueue& queue = *m_state->queue;
    if (ThreadRole::is(queue, Kind::STEP) || ThreadRole::is(queue, Kind::SERVICE)) return false;
    return queue.is_served() || !ThreadRole::is(queue, Kind::CALLER);
}

void GenerationHandle::notify_once(std::function<void()> callback, Until until) {
    {
        const auto lock = m_state->lock();
        const bool has_output = until == Until::OUTPUT && m_state->can_read();
        if (!has_output && !m_state->is_over()) {
            m_state->on_change.push_back({std::move(callback), until});
            return;
        }
    }
    callback();
}

void GenerationHandle::State::close(const std::shared_ptr<State>& state, GenerationStatus as,
                                    GenerationFinishReason reason) {
    {
        const auto lock = state->lock();
        if (state->is_over() || state->closed_as) return;
        state->closed_as = as;
    }
    state->queue->abort({state, as, reason});
}

void GenerationHandle::stop(GenerationFinishReason reason) {
    State::close(m_state, GenerationStatus::STOP, reason);
}
void GenerationHandle::cancel() {
    State::close(m_state, GenerationStatus::CANCEL, GenerationFinishReason::NONE);
}

void GenerationHandle::drop() {
    cancel();
    const auto text_lock = m_state->lock_texts();
    const auto lock = m_state->lock();
    for (size_t i = 0; i < m_state->outputs.size(); ++i) {
        SequenceOutput& sequence = m_state->outputs[i];
        sequence.num_read = sequence.all.generated_ids.size();
        sequence.told_reason = sequence.all.finish_reason;
        sequence.owes_text = false;
        m_state->texts[i].skip(sequence.num_read);
    }
}

PerfMetrics GenerationHandle::get_perf_metrics() const {
    const auto lock = m_state->lock();
    return m_state->metrics;
}

}  // namespace pagewheel
