// From rows of logits to the sequences' next tokens.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/beam_step.hpp"
#include "runtime/model.hpp"
#include "runtime/step_parts.hpp"

namespace pagewheel {

/// Under the step's lock.
class TokenStep {
public:
    explicit TokenStep(const StepParts& parts) : m_parts(parts), m_beams(parts) {}

    /// A batch whose tokens count as computed. Logits that no token can be chosen by end their
    /// request alone.
    void sample(const Batch& batch, const Logits& logits);

private:
    /// Rows of the batch entry's tokens, whose logits were wanted.
    struct Rows {
        const Logits& logits;
        size_t first, count;

        float* row(size_t i) const { return logits.row(first + i); }
    };

    void continue_sequence(Generation& generation, const Rows& rows);
    /// Tokens from the rows one after the other, as long as the drafts say the same.
    void confirm_drafts(Generation& generation, const Rows& rows);
    /// Log-probabilities of the prompt's tokens.
    void record_prompt(Generation& generation, const Rows& rows);
    /// The other sequences of a request whose prompt is computed: each samples from the same
    /// logits.
    void fork_siblings(Generation& first, const std::vector<float>& logits);
    /// Whether the sequence goes on.
    bool append_token(Generation& generation, float* logits, size_t vocabulary);

    const StepParts m_parts;
    BeamStep m_beams;
};

}  // namespace pagewheel
