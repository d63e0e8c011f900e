// The model's inputs that say which tokens a step computes.
#pragma once

#include <vector>

#include "runtime/asked_rows.hpp"
#include "runtime/input_tensor.hpp"
#include "scheduling/batch.hpp"

namespace pagewheel {

/// The new tokens, their positions, the rows that are computed to the end and those whose logits
/// are wanted: in the order of the entries, and after these at most one that nobody wants
/// (AskedRows). Filling them allocates nothing unless a batch is more than twice as large as any
/// before.
class TokenInputs {
public:
    TokenInputs() = default;
    /// With `compact_positions` a new token's position counts what is in the cache alone.
    TokenInputs(const ov::CompiledModel& model, bool compact_positions);

    /// `windows` as AttentionInputs::fill() takes them.
    void fill(ov::InferRequest& request, const Batch& batch, const std::vector<size_t>& windows);

private:
    void fill_tokens(ov::InferRequest& request, const Batch& batch);
    void fill_asked_rows(ov::InferRequest& request, const Batch& batch,
                         const std::vector<size_t>& windows);
    void fill_logits_rows(ov::InferRequest& request, const Batch& batch,
                          const std::vector<size_t>& windows);

    bool m_compact_positions = false;
    AskedRows m_asked;
    InputTensor m_input_ids, m_position_ids, m_asked_rows, m_logits_rows;
};

}  // namespace pagewheel
