// What a user submitted, and what became of it.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "eviction/ledger.hpp"
#include "pagewheel/generation_config.hpp"
#include "pagewheel/generation_handle.hpp"
#include "sampling/sampler.hpp"
#include "scheduling/sequence.hpp"
#include "text/incremental_detokenizer.hpp"
#include "text/stop_strings.hpp"

namespace pagewheel {

using Clock = std::chrono::steady_clock;

inline float microseconds_since(Clock::time_point begin) {
    return std::chrono::duration<float, std::micro>(Clock::now() - begin).count();
}

/// What the step loop and the caller's handle share. `mutex` guards all but the two wishes.
struct GenerationHandle::State {
    mutable std::mutex mutex;
    GenerationStatus status = GenerationStatus::RUNNING;
    std::vector<GenerationOutput> outputs;  // by sequence, complete
    std::vector<size_t> num_read;           // by sequence, tokens that read() has handed out
    PerfMetrics metrics;
    std::string error;  // not empty: why the request was cancelled

    std::atomic<bool> stop_wanted{false};
    std::atomic<bool> cancel_wanted{false};
};

struct Request;

/// One of a request's sequences with what it takes to continue it.
struct SequenceRecord {
    Request* request;
    size_t index;  // within the request
    Sequence sequence;
    Sampler sampler;
    IncrementalDetokenizer detokenizer;  // used only to match stop strings
    StopStrings stop_strings;
    EvictionState eviction = {};
    Clock::time_point latest_token = {};
    bool finished = false;
};

/// A request owns its sequences: one until the prompt is computed, then num_return_sequences that
/// share the prompt's blocks.
struct Request {
    uint64_t id;
    GenerationConfig config;
    size_t max_tokens;  // prompt and generated, the least of all limits
    Clock::time_point arrival;
    std::shared_ptr<GenerationHandle::State> state;
    std::vector<std::unique_ptr<SequenceRecord>> records;
    bool ended = false;
};

}  // namespace pagewheel
