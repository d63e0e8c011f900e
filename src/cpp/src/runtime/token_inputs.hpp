// The model's inputs that say which tokens a step computes.
#pragma once

#include "runtime/input_tensor.hpp"
#include "scheduling/batch.hpp"

namespace pagewheel {

/// The new tokens, their positions and the rows whose logits are wanted. Filling them allocates
/// nothing unless a batch is more than twice as large as any before.
class TokenInputs {
public:
    TokenInputs() = default;
    /// With `compact_positions` a new token's position counts what is in the cache alone.
    TokenInputs(const ov::CompiledModel& model, bool compact_positions);

    void fill(ov::InferRequest& request, const Batch& batch);

private:
    bool m_compact_positions = false;
    InputTensor m_input_ids, m_position_ids, m_logits_rows;
};

}  // namespace pagewheel
