// From tokens to what callers read, and the handles that are to be woken for it.
#pragma once

#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "pagewheel/statistics.hpp"
#include "runtime/request.hpp"

namespace pagewheel {

/// Filled by a step under its lock; its callbacks run after it, and may call everything.
class Notifications {
public:
    void add(Request& request) {
        if (request.state->has_notification) return;
        m_states.push_back(request.state);
        request.state->has_notification = true;
    }
    /// Gives out what there is.
    Notifications take() {
        for (const auto& state : m_states) state->has_notification = false;
        return std::exchange(*this, {});
    }
    /// Wakes all handles in their order, then throws the first thing that a callback threw.
    void notify() const {
        std::exception_ptr failure;
        for (const auto& state : m_states) {
            try {
                state->wake();
            } catch (...) {
                if (!failure) failure = std::current_exception();
            }
        }
        if (failure) std::rethrow_exception(failure);
    }

private:
    std::vector<std::shared_ptr<GenerationHandle::State>> m_states;
};

/// Log-probabilities of some of a prompt's tokens, and the likeliest tokens in their places.
struct PromptLogProbs {
    std::vector<float> tokens;
    std::vector<std::vector<TokenLogProb>> top;
};

/// The one way into handles. A token that was chosen passes here once: it is counted, timed,
/// matched against what ends the sequence, and published. Under the step's lock.
class Output {
public:
    /// Counts tokens and times in `step`.
    explicit Output(StepStatistics& step) : m_step(step) {}

    /// The sequence's next token, which it has already. What it ends with, if it does.
    GenerationFinishReason append(SequenceState& sequence, const SampledToken& token);
    /// A step has computed so many drafts, of which the first `num_accepted` were right.
    void count_drafts(SequenceState& sequence, size_t num_drafted, size_t num_accepted);
    /// The sequence ends without another token.
    void finish(SequenceState& sequence, const GrammarEnd& end);
    /// Publishes log-probabilities of the prompt's next tokens.
    void append_prompt_log_probs(SequenceState& sequence, PromptLogProbs&& log_probs);
    /// Counts the next tokens of a request's beams.
    void advance_beams(Request& request, size_t num_tokens);
    /// Publishes what the search has found, complete or not.
    void publish_beams(Request& request, std::vector<SequenceText> texts);
    /// The request's first step begins now.
    static void time_queue(const Request& request);
    /// Tells the handle how the request ended: status, why unfinished sequences end, and an error.
    void end(Request& request, GenerationStatus status, GenerationFinishReason reason,
             const std::optional<Error>& error);

    /// Whether the beam, continued by the token, has a stop string in its text.
    bool completes_stop_string(const SequenceState& beam, int64_t token);
    void append_to_beam(SequenceState& beam, int64_t token);

    /// The step has given all its tokens. Before requests that have ended are gone.
    void finish_step();

    Notifications take_notifications() { return m_notifications.take(); }

private:
    void publish(SequenceState& sequence, const SampledToken& token, GenerationFinishReason reason,
                 StopReason stop_reason);
    /// A token came now; the caller holds the state's lock.
    void time_token(SequenceState& sequence);
    /// The sequence's tokens of this step share the time since those of the step before; the caller
    /// holds the state's lock.
    static void time_step(SequenceState& sequence);

    StepStatistics& m_step;
    std::vector<SequenceState*> m_timed;  // that got tokens in this step
    Notifications m_notifications;
};

}  // namespace pagewheel
