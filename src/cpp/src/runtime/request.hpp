// What a user submitted, and what became of it.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "eviction/slot_table.hpp"
#include "pagewheel/generation_config.hpp"
#include "runtime/grammar_work.hpp"
#include "runtime/handle_state.hpp"
#include "runtime/prepared_config.hpp"
#include "sampling/beam_search.hpp"
#include "sampling/sampler.hpp"
#include "sampling/token_rules.hpp"
#include "scheduling/sequence.hpp"
#include "text/generated_text.hpp"

namespace pagewheel {

using Clock = std::chrono::steady_clock;

inline float microseconds_since(Clock::time_point begin) {
    return std::chrono::duration<float, std::micro>(Clock::now() - begin).count();
}

/// Longest wait: 100 years. Longer ones overflow the clock.
constexpr std::chrono::hours longest_wait(100 * 365 * 24);

/// One of a request's sequences with what it takes to continue it.
struct SequenceState : Sequence {
    SequenceState(Request* request, size_t index, Sampler&& sampler)
        : request(request), index(index), sampler(std::move(sampler)) {}

    Request* request;
    size_t index;  // within the request
    Sampler sampler;
    std::optional<GeneratedText> beam_text;  // of a beam that stop strings may end
    EvictionState eviction_state;            // Sequence::eviction
    Clock::time_point latest_token = {};     ///< of the steps before; its default: there was none
    size_t num_new_tokens = 0;               ///< of this step, whose durations are not known yet
    bool is_finished = false;
    std::vector<float> saved_logits;  ///< of a pending grammar
    OwnGrammarWork grammar_work;      ///< GrammarAhead's
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
    std::optional<uint64_t> rng_seed = {};  // as the config had it, like the next two
    int priority = 0;
    std::string cache_salt = {};
    TokenRules rules = {};   // of the config, and its grammar
    LogitsChain chain = {};  // at the beginning; its sequences have forks
    size_t max_tokens;       // prompt and generated, the least of all limits
    Clock::time_point arrival;
    std::optional<Clock::time_point> deadline;
    std::shared_ptr<GenerationHandle::State> state;
    std::vector<std::unique_ptr<SequenceState>> sequences;
    std::unique_ptr<BeamSearch> beams;               // from the first logits on, if it searches
    std::shared_ptr<GrammarPace> grammar_pace = {};  // GrammarAhead's
    size_t place = 0;                                // in Requests
    Phase phase = Phase::QUEUED;

    /// Without what PreparedConfig leaves to the request.
    const GenerationConfig& config() const { return prepared->config; }
    bool is_over() const { return phase == Phase::ENDED; }
    /// For messages.
    std::string name() const { return id ? "request " + std::to_string(*id) : "a request"; }
};

}  // namespace pagewheel
