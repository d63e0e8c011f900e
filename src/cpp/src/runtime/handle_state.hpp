// What the step loop and the caller's handle share.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "pagewheel/errors.hpp"
#include "pagewheel/generation_handle.hpp"
#include "text/sequence_text.hpp"

namespace pagewheel {

class RequestQueue;
struct Request;

/// What callers see of one sequence.
struct SequenceOutput {
    GenerationOutput all;  ///< complete but for its text
    size_t num_read = 0;   ///< tokens that read() has handed out
    /// That read() has handed out.
    GenerationFinishReason told_reason = GenerationFinishReason::NONE;
    bool owes_text = false;  ///< read() gave text and may have held some back
};

/// Whoever waits for what `until` says.
struct Waiter {
    std::function<void()> callback;
    GenerationHandle::Until until;
};

/// `mutex` guards what is not said otherwise.
struct GenerationHandle::State {
    mutable std::mutex mutex;
    std::condition_variable changed;
    GenerationStatus status = GenerationStatus::RUNNING;
    std::vector<SequenceOutput> outputs;
    PerfMetrics metrics;
    /// What the handle asked for, which ends the request at the next step.
    std::optional<GenerationStatus> closed_as;
    std::optional<Error> error;     // why the engine cancelled it, if it did
    bool pipeline_failed = false;   // and all others; without `error` if there was no memory
    std::vector<Waiter> on_change;  // called once, without the lock

    /// Guards `texts`: decoding must not hold up a step. Locked before `mutex` where both are.
    mutable std::mutex text_mutex;
    std::vector<SequenceText> texts;  // by sequence, as far as somebody wanted it

    std::shared_ptr<RequestQueue> queue;  // constant, as the next
    /// Of single tokens, for readers of the most likely ones; empty where none are asked for.
    std::function<std::string(int64_t)> token_bytes;
    Request* request = nullptr;     // the step loop's; null when it is over
    bool has_notification = false;  // the step loop's: wake() is due

    /// Every call of a handle takes its locks here. Throws in a child that fork() made.
    std::unique_lock<std::mutex> lock() const;
    std::unique_lock<std::mutex> lock_texts() const;
    bool is_over() const { return status != GenerationStatus::RUNNING; }
    /// No more tokens come of the sequence.
    bool is_over(size_t index) const {
        return is_over() || outputs[index].all.finish_reason != GenerationFinishReason::NONE;
    }
    bool can_read() const;
    /// Throws what the engine has cancelled it for, if it did. Needs the lock.
    void check_error() const;
    /// For those that wait for tokens or the end. Throws what the callback throws.
    void wake();
    /// Asks for the end, once.
    static void close(const std::shared_ptr<State>& state, GenerationStatus as,
                      GenerationFinishReason reason);
};

/// Everything generated so far, in the order of the sequences. Reads nothing off the handle.
std::vector<GenerationOutput> all_outputs(GenerationHandle::State& state, bool with_text);

}  // namespace pagewheel
