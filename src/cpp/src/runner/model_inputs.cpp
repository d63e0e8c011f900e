#include "runner/model_inputs.hpp"

#include "eviction/slot_table.hpp"
#include "model/port_names.hpp"

namespace pagewheel {

InputTensor::InputTensor(const ov::CompiledModel& model, const std::string& name) {
    for (size_t i = 0; i < model.inputs().size() && !m_exists; ++i) {
        m_exists = model.inputs()[i].get_names().count(name) != 0;
        m_index = i;
    }
}

void InputTensor::reshape(ov::InferRequest& request, const ov::element::Type& type, size_t rank,
                          size_t rows, size_t columns) {
    const bool is_new = !m_tensor;
    if (is_new) m_shape.resize(rank);
    const bool same = (rank < 1 || m_shape[0] == rows) && (rank < 2 || m_shape[1] == columns);
    if (!is_new && same) return;
    if (rank > 1) m_shape[1] = columns;
    const size_t size = rank == 0 ? 1 : rank == 1 ? rows : rows * columns;
    const bool grows = is_new || size > m_capacity;
    if (grows) {  // with room for more than that: it will grow again
        if (rank > 0) m_shape[0] = 2 * rows;
        m_tensor = ov::Tensor(type, m_shape);
        m_capacity = m_tensor.get_size();
    }
    if (rank > 0) m_shape[0] = rows;
    // It keeps its memory when it shrinks and grows back, and stays bound: binding allocates.
    m_tensor.set_shape(m_shape);
    m_data = m_tensor.data();
    if (grows && m_exists) request.set_input_tensor(m_index, m_tensor);
}

namespace {

/// So many rows an entry has, of which the last ones are wanted.
struct RowCounts {
    size_t all, wanted;
};

/// Writes which of all entries' rows, one after the other, are wanted; rows_of(i) are entry i's.
template <class RowsOf>
void fill_last_rows(ov::InferRequest& request, InputTensor& input, size_t num_entries,
                    const RowsOf& rows_of) {
    size_t num_rows = 0;
    for (size_t i = 0; i < num_entries; ++i) num_rows += rows_of(i).wanted;
    auto* rows = input.resize<int64_t>(request, num_rows);
    int64_t end = 0;
    for (size_t i = 0; i < num_entries; ++i) {
        const RowCounts entry = rows_of(i);
        end += int64_t(entry.all);
        for (size_t row = entry.wanted; row > 0; --row) *rows++ = end - int64_t(row);
    }
}

}  // namespace

TokenInputs::TokenInputs(const ov::CompiledModel& model)
    : m_indices(model),
      m_input_ids(model, ports::input_ids),
      m_position_ids(model, ports::position_ids),
      m_logits_indices(model, ports::logits_indices),
      m_sampled_tokens_indices(model, ports::sampled_tokens_indices) {}

void TokenInputs::fill(ov::InferRequest& request, const Batch& batch,
                       const std::vector<size_t>& windows) {
    fill_tokens(request, batch);
    fill_logits_indices(request, batch, windows);
    if (m_logits_indices.exists()) fill_sampled_tokens_indices(request, batch, windows);
}

void TokenInputs::fill_tokens(ov::InferRequest& request, const Batch& batch) {
    auto* input_ids = m_input_ids.resize<int64_t>(request, batch.num_tokens);
    auto* position_ids = m_position_ids.resize<int64_t>(request, batch.num_tokens);
    for (const BatchEntry& entry : batch.entries) {
        const Sequence& sequence = *entry.sequence;
        const size_t shift = sequence.num_evicted > 0 ? sequence.eviction->shift : 0;
        for (size_t i = sequence.num_cached; i < sequence.num_cached + entry.num_tokens; ++i) {
            *input_ids++ = sequence.tokens[i];
            *position_ids++ = int64_t(i - shift);
        }
    }
}

void TokenInputs::fill_logits_indices(ov::InferRequest& request, const Batch& batch,
                                      const std::vector<size_t>& windows) {
    // Where the model has no input for them, they take the place of those that have logits.
    InputTensor& input = m_logits_indices.exists() ? m_logits_indices : m_sampled_tokens_indices;
    fill_last_rows(request, input, batch.entries.size(), [&](size_t i) {
        return RowCounts{batch.entries[i].num_tokens, m_indices.count(batch, i, windows)};
    });
}

void TokenInputs::fill_sampled_tokens_indices(ov::InferRequest& request, const Batch& batch,
                                              const std::vector<size_t>& windows) {
    fill_last_rows(request, m_sampled_tokens_indices, batch.entries.size(), [&](size_t i) {
        return RowCounts{m_indices.count(batch, i, windows), batch.entries[i].num_logits};
    });
}

}  // namespace pagewheel
