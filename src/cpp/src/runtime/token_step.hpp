// From rows of logits to the sequences' next tokens.
#pragma once

#include <tbb/task_arena.h>
#include <cstddef>
#include <utility>
#include <vector>

#include "runner/model.hpp"
#include "runtime/admission.hpp"
#include "runtime/eviction_manager.hpp"
#include "runtime/grammar_masks.hpp"
#include "runtime/output.hpp"
#include "runtime/requests.hpp"
#include "sampling/beam_search.hpp"
#include "scheduling/scheduler.hpp"

namespace pagewheel {

/// Parts of the engine. Under the step's lock.
struct StepParts {
    Scheduler& scheduler;
    const EvictionManager* eviction;  ///< null: nothing is evicted
    const Admission& admission;
    Requests& requests;
    Output& output;
    GrammarMasks& grammars;
};

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
    /// To be called before the requests that have ended are gone.
    void forget_ended();

private:
    /// Rows of the batch entry's tokens, whose logits were wanted.
    struct Rows {
        const Logits& logits;
        size_t first, count;

        float* row(size_t i) const { return logits.row(first + i); }
    };

    /// Chooses tokens of several sequences at once: of those where that is all, as it is but for
    /// drafts, beams, a prompt's first samples and processors that need this thread. Nothing else
    /// changes but the samplers and their rows.
    void choose_at_once(const Batch& batch, const Logits& logits);
    /// Chooses the sequence's next token, on any thread.
    void choose(SequenceState& sequence, float* logits, size_t vocabulary);
    void continue_sequence(SequenceState& sequence, const Rows& rows);
    /// Chooses the next token of a sequence whose mask is there.
    void continue_by(SequenceState& sequence, float* logits, size_t vocabulary);
    void save_logits(SequenceState& sequence, const float* logits, size_t vocabulary);
    /// Calls `work`; logits that no token can be chosen by end the request.
    template <class Work>
    void attempt(SequenceState& sequence, Work&& work);
    /// Chooses tokens from the rows one after the other, as long as the drafts say the same.
    void confirm_drafts(SequenceState& sequence, const Rows& rows);
    /// Log-probabilities of the prompt's tokens.
    void record_prompt(SequenceState& sequence, const Rows& rows);
    /// Makes the other sequences of a request whose prompt is computed.
    void fork_siblings(SequenceState& first);
    /// Appends what the grammar forces, of which the model computes no logits. The rest of a long
    /// text, and what would be late, are for later steps.
    /// Whether the sequence goes on.
    bool append_jump_forward(SequenceState& sequence, size_t vocabulary);
    /// Whether the sequence goes on.
    bool append_token(SequenceState& sequence, float* logits, size_t vocabulary);

    // ---- Beam search.
    /// A beam's logits are there; with those of the request's last beam the search advances.
    void score_beam(SequenceState& beam, float* logits, size_t vocabulary);
    void move_beams(Request& request, const BeamMoves& moves);
    void fork_beam(Request& request, size_t from, size_t to);

    const StepParts m_parts;
    const size_t m_num_threads;
    tbb::task_arena m_arena;
    // Sequences whose tokens are chosen at once, with their logits; kept for its memory.
    std::vector<std::pair<SequenceState*, float*>> m_choosing;
    std::vector<SequenceState*> m_pending;
};

}  // namespace pagewheel
