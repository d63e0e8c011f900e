// From rows of logits to the sequences' next tokens.
#pragma once

#include <tbb/task_arena.h>

#include <cstddef>
#include <exception>
#include <vector>

#include "runtime/beam_step.hpp"
#include "runtime/model.hpp"
#include "runtime/step_parts.hpp"

namespace pagewheel {

/// Under the step's lock.
class TokenStep {
public:
    /// Tokens are chosen on so many threads.
    TokenStep(const StepParts& parts, size_t num_threads);

    /// A batch whose tokens count as computed. Logits that no token can be chosen by end their
    /// request alone.
    void sample(const Batch& batch, const Logits& logits);

    // ---- Sequences whose grammar is late: a step does not wait for it. Their logits are kept, and
    // the token is chosen by them in a later step. So it is the same.

    /// Chooses the tokens of those whose mask is there.
    void continue_pending();
    /// There is nothing to compute: until one has its mask, or for as long as a step may wait.
    void wait_for_pending();
    /// Before the requests that have ended are gone.
    void forget_ended();

private:
    /// Rows of the batch entry's tokens, whose logits were wanted.
    struct Rows {
        const Logits& logits;
        size_t first, count;

        float* row(size_t i) const { return logits.row(first + i); }
    };

    /// A token that was chosen beside others: what continues its sequence, or why nothing does.
    struct Choice {
        SequenceState* sequence;
        float* logits;
        SampledToken token = {};
        std::exception_ptr failure = {};
    };

    /// Chooses tokens of several sequences at once: of those where that is all, as it is but for
    /// drafts, beams, a prompt's first samples and processors that need this thread. Nothing else
    /// changes but the samplers and their rows.
    void choose_at_once(const Batch& batch, const Logits& logits);
    /// On any thread.
    static void choose(Choice& choice, size_t vocabulary);
    /// What was chosen for the sequence; null if nothing was.
    const Choice* choice_of(const SequenceState& sequence);
    void continue_sequence(SequenceState& sequence, const Rows& rows);
    /// Its mask is there.
    void continue_by(SequenceState& sequence, float* logits, size_t vocabulary);
    void save_logits(SequenceState& sequence, const float* logits, size_t vocabulary);
    /// Calls `work`; logits that no token can be chosen by end the request.
    template <class Work>
    void attempt(SequenceState& sequence, Work&& work);
    /// Tokens from the rows one after the other, as long as the drafts say the same.
    void confirm_drafts(SequenceState& sequence, const Rows& rows);
    /// Log-probabilities of the prompt's tokens.
    void record_prompt(SequenceState& sequence, const Rows& rows);
    /// Makes the other sequences of a request whose prompt is computed.
    void fork_siblings(SequenceState& first);
    /// The sequence goes on: what its grammar forces is looked for, if it is to be appended.
    void find_jump_forward(SequenceState& sequence);
    /// What the grammars of these sequences force, of which the model computes no logits. The rest
    /// of a long text, and what is not found yet, are for later steps.
    void append_all_jump_forward(size_t vocabulary);
    /// Whether the sequence goes on.
    bool append_jump_forward(SequenceState& sequence, size_t vocabulary);
    /// Whether the sequence goes on.
    bool append_token(SequenceState& sequence, float* logits, size_t vocabulary);

    const StepParts m_parts;
    const size_t m_num_threads;
    tbb::task_arena m_arena;
    BeamStep m_beams;
    std::vector<Choice> m_choices;  // of this step, in the order of its batch; kept for its memory
    size_t m_next_choice = 0;       // the first that was not looked at
    std::vector<SequenceState*> m_jumping_forward;  // in this step; kept for its memory
    std::vector<SequenceState*> m_pending;
};

}  // namespace pagewheel
