#include "runtime/batch_inputs.hpp"

#include <algorithm>

#include "graph/port_names.hpp"

namespace pagewheel {

void fill_extents(const Batch& batch, BatchExtents extents) {
    int32_t token = 0, block = 0;
    for (const BatchEntry& entry : batch.entries) {
        *extents.past_lens++ = int32_t(entry.sequence->num_slots());
        *extents.subsequence_begins++ = token;
        *extents.block_indices_begins++ = block;
        token += int32_t(entry.num_tokens);
        block += int32_t(entry.sequence->blocks.size());
    }
    *extents.subsequence_begins = token;
    *extents.block_indices_begins = block;
}

BatchInputs::BatchInputs(const ov::CompiledModel& model, bool compact_positions)
    : m_compact_positions(compact_positions),
      m_input_ids(model, ports::input_ids),
      m_position_ids(model, ports::position_ids),
      m_past_lens(model, ports::past_lens),
      m_subsequence_begins(model, ports::subsequence_begins),
      m_block_indices(model, ports::block_indices),
      m_block_indices_begins(model, ports::block_indices_begins),
      m_batch_tables(model, ports::batch_tables),
      m_max_context_len(model, ports::max_context_len),
      m_logits_rows(model, ports::logits_rows) {}

AttentionTables::Tables BatchInputs::tables(ov::InferRequest& request,
                                            const AttentionTables::Sizes& sizes) {
    if (m_batch_tables.exists()) {
        const size_t size = AttentionTables::packed_size(sizes);
        return AttentionTables::lay_out(m_batch_tables.resize<int32_t>(request, size), sizes);
    }
    return {m_past_lens.resize<int32_t>(request, sizes[0]),
            m_subsequence_begins.resize<int32_t>(request, sizes[1]),
            m_block_indices.resize<int32_t>(request, sizes[2]),
            m_block_indices_begins.resize<int32_t>(request, sizes[3])};
}

void BatchInputs::fill(ov::InferRequest& request, const Batch& batch) {
    size_t num_blocks = 0, num_rows = 0;
    for (const BatchEntry& entry : batch.entries) {
        num_blocks += entry.sequence->blocks.size();
        num_rows += entry.num_logits;
    }
    const size_t num_sequences = batch.entries.size();
    auto* input_ids = m_input_ids.resize<int64_t>(request, batch.num_tokens);
    auto* position_ids = m_position_ids.resize<int64_t>(request, batch.num_tokens);
    auto [past_lens, subsequence_begins, block_indices, block_indices_begins] =
        tables(request, {num_sequences, num_sequences + 1, num_blocks, num_sequences + 1});
    fill_extents(batch, {past_lens, subsequence_begins, block_indices_begins});
    auto* logits_rows = m_logits_rows.resize<int64_t>(request, num_rows);

    int64_t token = 0;
    size_t max_context = 0;
    for (const BatchEntry& entry : batch.entries) {
        const Sequence& sequence = *entry.sequence;
        for (size_t i = sequence.num_cached; i < sequence.num_cached + entry.num_tokens; ++i) {
            input_ids[token] = sequence.tokens[i];
            position_ids[token++] = int64_t(m_compact_positions ? i - sequence.num_evicted : i);
        }
        block_indices = std::copy(sequence.blocks.begin(), sequence.blocks.end(), block_indices);
        max_context = std::max(max_context, sequence.num_slots() + entry.num_tokens);
        for (size_t i = entry.num_logits; i > 0; --i) *logits_rows++ = token - int64_t(i);
    }
    m_max_context_len.scalar<int32_t>(request) = int32_t(max_context);
}

}  // namespace pagewheel
