// Beam search as the step loop drives it.
#pragma once

#include <cstddef>

#include "runtime/step_parts.hpp"
#include "sampling/beam_search.hpp"

namespace pagewheel {

/// Under the step's lock.
class BeamStep {
public:
    explicit BeamStep(const StepParts& parts) : m_parts(parts) {}

    /// A beam's logits are there; with those of the request's last beam the search advances.
    void score(SequenceState& beam, float* logits, size_t vocabulary);

private:
    void move(Request& request, const BeamMoves& moves);
    void fork(Request& request, size_t from, size_t to);

    const StepParts m_parts;
};

}  // namespace pagewheel
