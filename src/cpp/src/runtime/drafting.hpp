// Guesses of the tokens to come, which the model confirms several at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "pagewheel/statistics.hpp"
#include "runtime/eviction_manager.hpp"
#include "runtime/requests.hpp"
#include "runtime/step_times.hpp"

namespace pagewheel {

/// Guesses how a sequence goes on. What a drafter says changes the speed alone: each token is
/// chosen from the model's own logits, by the sequence's own sampler, and drafts that differ are
/// rolled back. Called under the step's lock. An exception ends the requests that were asked for.
class Drafter {
public:
    virtual ~Drafter() = default;
    /// Appends at most `most` tokens that may follow the sequence's to `drafts`, if they cost next
    /// to nothing.
    virtual void propose(SequenceState& sequence, size_t most, std::vector<Draft>& drafts) = 0;

    /// Takes what the model gave of a batch that was computed and does not count yet
    /// (Model::hidden_states()). Of sequences with DraftState alone.
    virtual void observe(const Batch&, const float* /*hidden_states*/) {}

    /// Whether extend() appends drafts.
    virtual bool computes() const { return false; }
    /// Appends one draft to DraftState::proposed of each of the sequences, or none where it cannot.
    virtual void extend(const std::vector<SequenceState*>&) {}
    /// Microseconds that extend() takes for the sequences; 0: not known yet.
    virtual double time_to_extend(const std::vector<SequenceState*>&) const { return 0; }

    /// The sequence is over.
    virtual void finish(const SequenceState&) {}
    /// Forgets what was learnt from requests with these salts; without any, all.
    virtual void forget(const std::optional<std::set<std::string>>&) {}
};

/// Who gets drafts, and how long ones.
struct DraftLimits {
    size_t vocabulary;
    /// Requests get drafts that did not ask for a number of them.
    bool automatic = false;
    /// Those requests get them only while one sequence is all there is to compute.
    bool only_alone = false;
    /// Drafts whose number was not asked for make no step longer than so many rows: up to there a
    /// row has the same bits in linear layers.
    size_t most_rows = 1;
    /// The same in all layers, of a sequence that is alone in its step.
    size_t longest_span = 1;
    /// Layers keep states: right drafts before a wrong one are computed again, in the next step.
    bool replays = false;
};

/// Puts drafts behind the tokens of sequences that decode, before a step, and takes away what is
/// left of them after it. Under the step's lock.
///
/// num_assistant_tokens says how many drafts a request's sequences get. Without it their number is
/// chosen for all sequences together, so that the step gives the most tokens per second: the tokens
/// that are to be expected by AcceptanceRates, over the time that StepTimes has for the rows of the
/// step, and for those that will have to be computed again, and what a drafter takes that computes
/// its drafts.
class Drafting {
public:
    /// `eviction` null: nothing is evicted. `now`: the clock that the drafter's time goes by, the
    /// same as that of record()'s times.
    Drafting(std::unique_ptr<Drafter> drafter, const DraftLimits& limits,
             const EvictionManager* eviction, std::function<Clock::time_point()> now)
        : m_drafter(std::move(drafter)),
          m_limits(limits),
          m_eviction(eviction),
          m_now(std::move(now)) {}

    void propose(Requests& requests, StepStatistics& step);
    /// Has the drafter take the hidden states, if the model gives any.
    void observe(const Batch& batch, const float* hidden_states);
    /// Takes down what a step took, in microseconds.
    void record(const Batch& batch, double time);
    void clear_drafts();
    /// Tells the drafter of the sequences that are over, before they are gone.
    void finish(const Requests& requests);
    void forget(const std::optional<std::set<std::string>>& salts) { m_drafter->forget(salts); }

private:
    /// Drafts that a sequence may get.
    struct Proposal {
        SequenceState* sequence;
        size_t most;
        bool is_fixed;         // all of them are wanted
        size_t length = 0;     // of those that it gets
        float survival = 1;    // how likely all that it gets are confirmed
        bool is_done = false;  // the drafter computes no more for it
    };
    /// One more draft of a proposal: how likely all up to it are confirmed, and how many of those
    /// before it are to be expected to be computed again because of it.
    struct Candidate {
        float survival, replayed;
        Proposal* proposal;
    };

    /// Whether its sequences get drafts.
    bool drafts_for(const Request& request) const;
    void propose(SequenceState& sequence);
    void end(Requests& requests, Request& request, const std::exception& error);
    void check_drafts(const SequenceState& sequence, size_t most) const;
    /// Takes down which of the latest drafts were right, whether or not a step computed them.
    void settle(SequenceState& sequence);
    void settle(SequenceState& sequence, std::vector<Draft>& drafts);
    float rate_of(const SequenceState& sequence, size_t kind) const;
    /// One more draft, likely to be confirmed with `rate` if those before it are.
    Candidate candidate(Proposal& proposal, size_t num_before, float survival, float rate) const;
    /// What so many rows take beside the drafter's time, in units of StepTimes.
    double time_of(double rows) const;
    /// `num_rows` are those of the step without drafts.
    void choose_lengths(size_t num_sequences, size_t num_rows);
    void take(const Candidate& draft);
    /// Has drafts computed, one for each sequence at a time, as long as that pays.
    void compute(Requests& requests, size_t num_sequences, size_t num_rows, StepStatistics& step);
    /// Leaves repeated texts to sequences whose draft model is not right more often.
    void pass_over();
    /// Whether one more draft for each of m_active gives more tokens per second.
    bool pays() const;
    /// Whether nothing was computed for long, and a draft may pay by now.
    bool explores();

    const std::unique_ptr<Drafter> m_drafter;
    const DraftLimits m_limits;
    const EvictionManager* const m_eviction;
    const std::function<Clock::time_point()> m_now;
    StepTimes m_times;
    AcceptanceRates m_rates;                 // of all sequences
    std::vector<Sequence*> m_drafted;        // of this step
    std::vector<Proposal> m_proposals;       // the same
    std::vector<Candidate> m_candidates;     // kept for its memory
    std::vector<Proposal*> m_active;         // whose next draft is computed
    std::vector<SequenceState*> m_extended;  // those of m_active
    // Of this step: what was chosen gives so many tokens, of so many rows and others that are to be
    // computed again, beside `m_spent` microseconds of the drafter's.
    double m_tokens = 0, m_replayed = 0, m_spent = 0;
    size_t m_rows = 0;
    double m_patience = 0;  // steps that nothing is computed for before it is tried again
    size_t m_tries = 0;     // of drafts that were not expected to pay
};

}  // namespace pagewheel
