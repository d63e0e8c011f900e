// The model's inputs that describe a batch.
#pragma once

#include "ops/attention_tables.hpp"
#include "runtime/input_tensor.hpp"
#include "scheduling/batch.hpp"

namespace pagewheel {

/// Of each sequence of a batch: tokens that are in the cache, and where its new tokens and its part
/// of the block table begin.
struct BatchExtents {
    int32_t* past_lens;             ///< [sequences]
    int32_t* subsequence_begins;    ///< [sequences + 1]
    int32_t* block_indices_begins;  ///< [sequences + 1]
};

void fill_extents(const Batch& batch, BatchExtents extents);

/// Filling them allocates nothing unless a batch is more than twice as large as any before.
class BatchInputs {
public:
    BatchInputs() = default;
    /// With `compact_positions` a new token's position counts what is in the cache alone.
    BatchInputs(const ov::CompiledModel& model, bool compact_positions);

    void fill(ov::InferRequest& request, const Batch& batch);

private:
    /// Where past_lens, subsequence_begins, block_indices and block_indices_begins go: one input
    /// for all of them, or one each.
    AttentionTables::Tables tables(ov::InferRequest& request, const AttentionTables::Sizes& sizes);

    bool m_compact_positions = false;
    InputTensor m_input_ids, m_position_ids, m_past_lens, m_subsequence_begins, m_block_indices,
        m_block_indices_begins, m_batch_tables, m_max_context_len, m_logits_rows;
};

}  // namespace pagewheel
