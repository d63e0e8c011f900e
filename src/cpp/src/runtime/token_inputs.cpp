#include "runtime/token_inputs.hpp"

#include "graph/port_names.hpp"

namespace pagewheel {

TokenInputs::TokenInputs(const ov::CompiledModel& model, bool compact_positions)
    : m_compact_positions(compact_positions),
      m_input_ids(model, ports::input_ids),
      m_position_ids(model, ports::position_ids),
      m_logits_rows(model, ports::logits_rows) {}

void TokenInputs::fill(ov::InferRequest& request, const Batch& batch) {
    size_t num_rows = 0;
    for (const BatchEntry& entry : batch.entries) num_rows += entry.num_logits;
    auto* input_ids = m_input_ids.resize<int64_t>(request, batch.num_tokens);
    auto* position_ids = m_position_ids.resize<int64_t>(request, batch.num_tokens);
    auto* logits_rows = m_logits_rows.resize<int64_t>(request, num_rows);
    int64_t token = 0;
    for (const BatchEntry& entry : batch.entries) {
        const Sequence& sequence = *entry.sequence;
        for (size_t i = sequence.num_cached; i < sequence.num_cached + entry.num_tokens; ++i) {
            input_ids[token] = sequence.tokens[i];
            position_ids[token++] = int64_t(m_compact_positions ? i - sequence.num_evicted : i);
        }
        for (size_t i = entry.num_logits; i > 0; --i) *logits_rows++ = token - int64_t(i);
    }
}

}  // namespace pagewheel
