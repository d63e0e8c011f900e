// What a user submitted, and what became of it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "eviction/ledger.hpp"
#include "pagewheel/generation_config.hpp"
#include "pagewheel/generation_handle.hpp"
#include "sampling/beam_search.hpp"
#include "sampling/sampler.hpp"
#include "scheduling/sequence.hpp"
#include "text/generated_text.hpp"

namespace pagewheel {

using Clock = std::chrono::steady_clock;

inline float microseconds_since(Clock::time_point begin) {
    return std::chrono::duration<float, std::micro>(Clock::now() - begin).count();
}

/// Longest wait: 100 years. Longer ones overflow the clock.
constexpr std::chrono::hours longest_wait(100 * 365 * 24);

class Inbox;
struct Request;

/// What the step loop and the caller's handle share. `mutex` guards what is not said otherwise.
struct GenerationHandle::State {
    mutable std::mutex mutex;
    std::condition_variable changed;
    GenerationStatus status = GenerationStatus::RUNNING;
    std::vector<GenerationOutput> outputs;  // by sequence, complete
    std::vector<size_t> num_read;           // by sequence, tokens that read() has handed out
    PerfMetrics metrics;
    std::string error;                             // why the engine cancelled it, if it did
    std::vector<std::function<void()>> on_change;  // called once, without the lock

    std::shared_ptr<Inbox> inbox;  // constant
    Request* request = nullptr;    // the step loop's; null when it is over
    bool has_news = false;         // the step loop's: wake() is due

    /// Every call of a handle takes its lock here. Throws in a child that fork() made.
    std::unique_lock<std::mutex> lock() const;
    bool can_read() const;
    /// For those that wait for tokens or the end. Throws what the callback throws.
    void wake();
};

/// One of a request's sequences with what it takes to continue it.
struct SequenceRecord {
    Request* request;
    size_t index;  // within the request
    Sequence sequence;
    Sampler sampler;
    GeneratedText text;  // used only to match stop strings
    EvictionState eviction = {};
    Clock::time_point latest_token = {};
    bool finished = false;
};

/// A request owns its sequences: one until the prompt is computed, then num_return_sequences that
/// share the prompt's blocks, or of beam search one per slot of a beam.
struct Request {
    std::optional<uint64_t> id;  ///< the caller's; generate() gives none
    GenerationConfig config;
    size_t max_tokens;  // prompt and generated, the least of all limits
    Clock::time_point arrival;
    std::optional<Clock::time_point> deadline;
    std::shared_ptr<GenerationHandle::State> state;
    std::vector<std::unique_ptr<SequenceRecord>> records;
    std::unique_ptr<BeamSearch> beams;  // from the first logits on, if it searches
    size_t place = 0;                   // in the engine's list
    bool begun = false;
    bool ended = false;

    /// For messages.
    std::string name() const { return id ? "request " + std::to_string(*id) : "a request"; }
};

}  // namespace pagewheel
