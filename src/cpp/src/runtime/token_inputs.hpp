// The model's inputs that say which tokens a step computes.
#pragma once

#include <vector>

#include "runtime/input_tensor.hpp"
#include "runtime/logits_indices.hpp"
#include "scheduling/batch.hpp"

namespace pagewheel {

/// The new tokens, their positions, the rows that are computed to the end and those whose logits
/// are wanted: in the order of the entries, and after these at most one that nobody wants
/// (LogitsIndices). Filling them allocates nothing unless a batch is more than twice as large as
/// any before.
class TokenInputs {
public:
    TokenInputs() = default;
    /// With `compact_positions` a new token's position counts what is in the cache alone.
    TokenInputs(const ov::CompiledModel& model, bool compact_positions);

    /// `windows` as AttentionInputs::fill() takes them.
    void fill(ov::InferRequest& request, const Batch& batch, const std::vector<size_t>& windows);

private:
    void fill_tokens(ov::InferRequest& request, const Batch& batch);
    void fill_logits_indices(ov::InferRequest& request, const Batch& batch,
                             const std::vector<size_t>& windows);
    void fill_sampled_tokens_indices(ov::InferRequest& request, const Batch& batch,
                                     const std::vector<size_t>& windows);

    bool m_compact_positions = false;
    LogitsIndices m_indices;
    InputTensor m_input_ids, m_position_ids, m_logits_indices, m_sampled_tokens_indices;
};

}  // namespace pagewheel
