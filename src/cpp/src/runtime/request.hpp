// What a user submitted, what became of it, and what callers see of it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "eviction/slot_table.hpp"
#include "pagewheel/generation_config.hpp"
#include "pagewheel/generation_handle.hpp"
#include "runtime/draft_state.hpp"
#include "runtime/grammar_masks.hpp"
#include "sampling/beam_search.hpp"
#include "sampling/logits_chain.hpp"
#include "sampling/sampler.hpp"
#include "scheduling/sequence.hpp"
#include "text/generated_text.hpp"
#include "text/stop_strings.hpp"

namespace pagewheel {

class RequestQueue;
struct Request;

/// What callers see of one sequence.
struct SequenceOutput {
    GenerationOutput all;  ///< complete but for its text
    size_t num_read = 0;   ///< tokens that read() has handed out
    /// The one that read() has handed out.
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
    /// Gives the bytes of a token, for readers of the most likely ones; empty where nobody asks.
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
    /// Wakes those that wait for tokens or the end. Throws what the callback throws.
    void wake();
    /// Asks for the end, once.
    static void close(const std::shared_ptr<State>& state, GenerationStatus as,
                      GenerationFinishReason reason);
};

/// Everything generated so far, in the order of the sequences. Reads nothing off the handle.
std::vector<GenerationOutput> all_outputs(GenerationHandle::State& state, bool with_text);

using Clock = std::chrono::steady_clock;

inline float microseconds_since(Clock::time_point begin, Clock::time_point now = Clock::now()) {
    return std::chrono::duration<float, std::micro>(now - begin).count();
}

/// Longest wait: 100 years. Longer ones overflow the clock.
constexpr std::chrono::hours longest_wait(100 * 365 * 24);

/// A config as requests use it, and what is made of it once: checked, constant, shared by requests
/// with the same parameters, and by their sequences and beams.
struct PreparedConfig {
    /// The config without what each request has of its own, which so keeps nobody from sharing the
    /// rest: structured_output_config, whose grammar is in the request's rules, timeout, rng_seed,
    /// priority, cache_salt and prediction.
    GenerationConfig config;
    TokenRules rules;          ///< breakers and lists
    StopStrings stop_strings;  ///< at the beginning of a text
};

/// One of a request's sequences with what it takes to continue it.
struct SequenceState : Sequence {
    SequenceState(Request* request, size_t index, Sampler&& sampler)
        : request(request), index(index), sampler(std::move(sampler)) {}
    ~SequenceState() {
        if (late_mask) late_mask->is_abandoned = true;
    }

    /// A token that was chosen beside others': what continues the sequence, or why nothing does.
    struct Choice {
        SampledToken token = {};
        std::exception_ptr failure = {};
    };

    Request* request;
    size_t index;  // within the request
    Sampler sampler;
    std::optional<Choice> choice;            // of this step
    std::optional<GeneratedText> beam_text;  // of a beam that stop strings may end
    EvictionState eviction_state;            // Sequence::eviction
    Clock::time_point latest_token = {};     ///< of the steps before; its default: there was none
    size_t num_new_tokens = 0;               ///< of this step, whose durations are not known yet
    bool is_finished = false;
    std::vector<float> saved_logits;      ///< of a pending grammar
    std::shared_ptr<LateMask> late_mask;  ///< GrammarMasks'
    std::unique_ptr<DraftState> drafts;   ///< Drafting's
};

/// The scheduler's sequences are all of this kind.
inline SequenceState& state_of(Sequence& sequence) {
    return static_cast<SequenceState&>(sequence);
}

/// A request owns its sequences: one until the prompt is computed, then num_return_sequences that
/// share the prompt's blocks, or of beam search one per slot of a beam.
struct Request {
    /// Forward only; moved by Requests alone. How it ended is in its handle's state.
    enum class Phase {
        QUEUED,  ///< nothing of it was computed yet
        BEGUN,   ///< its sequences have stages of their own: Sequence::Stage
        ENDED,   ///< nothing of it is computed any more, and its handle was told
    };

    std::optional<uint64_t> id;  ///< the caller's; generate() gives none
    std::shared_ptr<const PreparedConfig> prepared;
    std::optional<uint64_t> rng_seed = {};  // as the config had it, like the next three
    int priority = 0;
    std::string cache_salt = {};
    std::vector<int64_t> prediction = {};
    TokenRules rules = {};   // of the config, and its grammar
    LogitsChain chain = {};  // at the beginning; its sequences have forks
    size_t max_tokens;       // prompt and generated, the least of all limits
    Clock::time_point arrival;
    std::optional<Clock::time_point> deadline;
    std::shared_ptr<GenerationHandle::State> state;
    std::vector<std::unique_ptr<SequenceState>> sequences;
    std::unique_ptr<BeamSearch> beams;  // from the first logits on, if it searches
    std::shared_ptr<GrammarAccount> grammar_account = {};  // GrammarMasks'
    size_t place = 0;                                      // in Requests
    Phase phase = Phase::QUEUED;

    /// The config without what PreparedConfig leaves to the request.
    const GenerationConfig& config() const { return prepared->config; }
    bool is_over() const { return phase == Phase::ENDED; }
    /// What messages call it.
    std::string name() const { return id ? "request " + std::to_string(*id) : "a request"; }
};

}  // namespace pagewheel
