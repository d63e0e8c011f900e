#include "runner/attention_inputs.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/check.hpp"
#include "model/port_names.hpp"

namespace pagewheel {
namespace {

bool has_evicted(const Batch& batch) {
    return std::any_of(batch.entries.begin(), batch.entries.end(), [](const BatchEntry& entry) {
        return entry.sequence->eviction && entry.sequence->eviction->num_evicted > 0;
    });
}

}  // namespace

bool NativeAttentionInputs::serves(const ov::CompiledModel& model) {
    return InputTensor(model, ports::batch_tables).exists();
}

NativeAttentionInputs::NativeAttentionInputs(const ov::CompiledModel& model,
                                             std::vector<CacheLayer> layers,
                                             const std::vector<RotaryKind>& rotary,
                                             size_t block_size, bool has_logits_indices)
    : AttentionInputs(std::move(layers)),
      m_input(model, ports::batch_tables),
      m_indices(has_logits_indices ? std::optional(LogitsIndices(model)) : std::nullopt),
      m_of_layers(m_layers.size()),
      m_block_size(block_size) {
    check_invariant(m_input.exists(), "the model has no input ", ports::batch_tables);
    for (const CacheLayer& layer : m_layers) {
        m_num_numbers = std::max(m_num_numbers, layer.cache + 1);
        m_query_size += layer.heads * layer.layout.key_size;
    }
    for (const RotaryKind& kind : rotary) m_rotation.push_back({RotationTable(kind)});
}

void NativeAttentionInputs::fill(ov::InferRequest& request, const Batch& batch,
                                 const std::vector<size_t>& windows) {
    if (m_layers.empty()) return fill_shared(request, batch, windows);
    const bool scored = std::any_of(windows.begin(), windows.end(), [](size_t w) { return w > 0; });
    const size_t contexts = fill_score_begins(batch, m_score_begins);
    const size_t layer_scores = scored ? contexts : 0, query_rows = count_query_rows(windows);
    const size_t written = m_layers.size() * layer_scores + query_rows * m_query_size;
    if (!same_sources(batch) || m_tables_end == 0 || written > m_written)
        write_tables(request, batch, written);
    fill_extents(batch, m_extents);
    fill_logits_extents(batch, windows, m_extents, m_logits_extents);
    fill_states(batch, m_states);
    write_windows(windows, batch.entries.size());
    place_written(layer_scores, query_rows);
}

void NativeAttentionInputs::fill_shared(ov::InferRequest& request, const Batch& batch,
                                        const std::vector<size_t>& windows) {
    const size_t sequences = batch.entries.size(), blocks = count_blocks(batch);
    const size_t words = Layout::num_shared * (sequences + 1) + blocks;
    if (words > m_capacity) allocate(request, 2 * words, 0);
    Writer writer(m_words, m_num_numbers);
    writer.go_on_at(m_begin);
    const BatchExtents extents = add_extents(writer, sequences);
    const LogitsExtents of_logits = add_logits_extents(writer, sequences);
    fill_extents(batch, extents, writer.add(Layout::index_of(0, Layout::block_indices), blocks));
    fill_logits_extents(batch, windows, extents, of_logits);
    fill_states(batch, add_states(writer, batch));
    writer.begin_scores();
}

BatchExtents NativeAttentionInputs::add_extents(Writer& writer, size_t sequences) {
    return {writer.add(Layout::past_lens, sequences),
            writer.add(Layout::subsequence_begins, sequences + 1),
            writer.add(Layout::block_indices_begins, sequences + 1)};
}

NativeAttentionInputs::StateSlots NativeAttentionInputs::add_states(Writer& writer,
                                                                    const Batch& batch) {
    const size_t sequences = batch.entries.size();
    if (sequences == 0 || batch.entries[0].sequence->next_state == no_state) return {};
    return {writer.add(Layout::state_sources, sequences),
            writer.add(Layout::state_targets, sequences),
            writer.add(Layout::state_splits, sequences)};
}

void NativeAttentionInputs::fill_states(const Batch& batch, const StateSlots& slots) {
    if (!slots.targets) return;
    for (size_t i = 0; i < batch.entries.size(); ++i) {
        slots.sources[i] = batch.entries[i].sequence->state;
        slots.targets[i] = batch.entries[i].sequence->next_state;
        slots.splits[i] = int32_t(batch.entries[i].num_split);
    }
}

NativeAttentionInputs::LogitsExtents NativeAttentionInputs::add_logits_extents(
    Writer& writer, size_t sequences) const {
    if (!m_indices) return {};
    return {writer.add(Layout::logits_past_lens, sequences),
            writer.add(Layout::logits_begins, sequences + 1)};
}

void NativeAttentionInputs::fill_logits_extents(const Batch& batch,
                                                const std::vector<size_t>& windows,
                                                const BatchExtents& extents,
                                                const LogitsExtents& of_logits) const {
    if (!m_indices) return;
    int32_t row = 0;
    for (size_t i = 0; i < batch.entries.size(); ++i) {
        const size_t count = m_indices->count(batch, i, windows);
        of_logits.past_lens[i] =
            extents.past_lens[i] + int32_t(batch.entries[i].num_tokens - count);
        of_logits.begins[i] = row;
        row += int32_t(count);
    }
    of_logits.begins[batch.entries.size()] = row;
}

bool NativeAttentionInputs::same_sources(const Batch& batch) {
    bool same = m_sources.size() == batch.entries.size();
    m_sources.resize(batch.entries.size());
    size_t first = 0;
    for (size_t i = 0; i < m_sources.size(); ++i) {
        const Sequence& sequence = *batch.entries[i].sequence;
        const Source source{sequence.number, sequence.num_starts, sequence.num_evicted,
                            sequence.blocks.size()};
        same = same && source == m_sources[i];
        m_sources[i] = source;
        m_blocks.resize(std::max(m_blocks.size(), first + source.num_blocks));
        for (size_t b = 0; b < source.num_blocks; ++b, ++first) {
            same = same && m_blocks[first] == sequence.blocks[b];
            m_blocks[first] = sequence.blocks[b];
        }
    }
    return same;
}

NativeAttentionInputs::Rotation NativeAttentionInputs::rotation_of(size_t layer,
                                                                   const Batch& batch) const {
    Rotation rotation;
    if (!rotates(layer)) return rotation;
    for (const BatchEntry& entry : batch.entries)
        if (const SlotTable* slots = slot_table_of(*entry.sequence, layer)) {
            rotation.num_rotated += slots->rotated.size();
            if (slots->per_token) rotation.width = m_block_size;
        }
    return rotation;
}

bool NativeAttentionInputs::grow_rotation(const Batch& batch) {
    size_t largest = 0;
    for (const BatchEntry& entry : batch.entries)
        if (entry.sequence->eviction)
            largest = std::max(largest, entry.sequence->eviction->largest_delta);
    bool grew = false;
    for (Table& rotation : m_rotation) grew = rotation.table.grow(largest) || grew;
    return grew;
}

size_t NativeAttentionInputs::count_words(const Batch& batch) {
    const size_t blocks = count_blocks(batch);
    size_t words = Layout::num_shared * (batch.entries.size() + 1) + blocks;
    for (size_t l = 0; l < m_layers.size(); ++l) {
        const Rotation rotation = m_of_layers[l] = rotation_of(l, batch);
        words += blocks + rotation.num_rotated * (1 + rotation.width);
    }
    return words;
}

void NativeAttentionInputs::allocate(ov::InferRequest& request, size_t words, size_t written) {
    m_capacity = m_written = 0;  // of nothing, where this does not end well
    m_tensor = {};
    m_begin = Layout::num_directory_words(m_num_numbers);
    for (Table& rotation : m_rotation) {
        constexpr size_t cache_line = 16;  // words
        rotation.begin = (m_begin + cache_line - 1) / cache_line * cache_line;
        m_begin = rotation.begin + rotation.table.size();
    }
    const size_t size = m_begin + words + written;
    check_argument(size <= size_t(std::numeric_limits<int32_t>::max()),
                   "the batch's tables, scores and observed queries of all layers are ", size,
                   " entries, allowed: fewer than 2^31");
    m_tensor = ov::Tensor(ov::element::i32, {size});
    m_words = m_tensor.data<int32_t>();
    m_capacity = words;
    m_written = written;
    for (Table& rotation : m_rotation)
        if (rotation.table.size() > 0)
            std::memcpy(m_words + rotation.begin, rotation.table.data(),
                        rotation.table.size() * sizeof(float));
    m_input.bind(request, m_tensor);
}

void NativeAttentionInputs::write_tables(ov::InferRequest& request, const Batch& batch,
                                         size_t written) {
    m_tables_end = 0;  // none are there until they are written below
    const bool rotates_further = grow_rotation(batch);
    const size_t words = count_words(batch);
    if (!m_tensor || rotates_further || words > m_capacity || written > m_written)
        allocate(request, words > m_capacity ? 2 * words : m_capacity,
                 written > m_written ? written + written / 2 : m_written);
    Writer writer(m_words, m_num_numbers);
    writer.go_on_at(m_begin);
    const size_t sequences = batch.entries.size();
    m_extents = add_extents(writer, sequences);
    m_logits_extents = add_logits_extents(writer, sequences);
    m_states = add_states(writer, batch);
    m_windows = writer.add(Layout::score_windows, sequences);
    if (has_evicted(batch)) {
        for (size_t l = 0; l < m_layers.size(); ++l) write_layer(writer, l, batch);
    } else {
        const size_t begin = writer.end(), blocks = count_blocks(batch);
        fill_blocks(batch, 0, writer.add(Layout::index_of(0, Layout::block_indices), blocks));
        for (size_t number = 1; number < m_num_numbers; ++number)
            writer.place(Layout::index_of(number, Layout::block_indices), begin, blocks);
    }
    m_tables_end = writer.end();
}

void NativeAttentionInputs::write_layer(Writer& writer, size_t layer, const Batch& batch) const {
    const auto section = [&](Layout::OfLayer which) {
        return Layout::index_of(m_layers[layer].cache, which);
    };
    const auto [num_rotated, width] = m_of_layers[layer];
    fill_blocks(batch, layer, writer.add(section(Layout::block_indices), count_blocks(batch)));
    if (num_rotated == 0) return;
    int32_t* rotated = writer.add(section(Layout::rotated_block_indices), num_rotated);
    int32_t* deltas = writer.add(section(Layout::rotation_deltas), num_rotated * width);
    const Table& angles = m_rotation[m_layers[layer].rotary.kind];
    writer.place(section(Layout::rotation_trig_lut), angles.begin, angles.table.size());
    int32_t first = 0;
    for (const BatchEntry& entry : batch.entries) {
        if (const SlotTable* slots = slot_table_of(*entry.sequence, layer)) {
            for (int32_t block : slots->rotated) *rotated++ = first + block;
            if (slots->per_token || width == 1)
                deltas = std::copy(slots->deltas.begin(), slots->deltas.end(), deltas);
            else
                for (int32_t delta : slots->deltas) deltas = std::fill_n(deltas, width, delta);
        }
        first += int32_t(entry.sequence->blocks.size());
    }
}

void NativeAttentionInputs::write_windows(const std::vector<size_t>& windows,
                                          size_t num_sequences) {
    if (windows.empty())
        std::fill_n(m_windows, num_sequences, 0);
    else
        std::copy(windows.begin(), windows.end(), m_windows);
}

size_t NativeAttentionInputs::count_query_rows(const std::vector<size_t>& windows) {
    m_query_rows.clear();
    if (!m_observes_queries) return 0;
    size_t rows = 0;
    for (size_t window : windows) {
        m_query_rows.push_back(rows);
        rows += kernels::BatchTables::num_observed(window);
    }
    return rows;
}

void NativeAttentionInputs::place_written(size_t layer_scores, size_t query_rows) {
    Writer writer = Writer::resume(m_words, m_tables_end);
    writer.begin_scores();
    m_step_scores = layer_scores;
    m_scores_begin = writer.end();
    for (const CacheLayer& layer : m_layers)
        writer.add(Layout::index_of(layer.cache, Layout::scores), layer_scores);
    m_queries_begin.clear();
    for (const CacheLayer& layer : m_layers) {
        m_queries_begin.push_back(writer.end());
        writer.add(Layout::index_of(layer.cache, Layout::queries),
                   query_rows * layer.heads * layer.layout.key_size);
    }
}

const std::vector<const float*>& NativeAttentionInputs::scores(ov::InferRequest&, size_t entry) {
    // Floats in a tensor of words, as the attention wrote them.
    const auto* words = reinterpret_cast<const float*>(m_words) + m_scores_begin;
    m_pointers.clear();
    for (size_t l = 0; l < m_layers.size(); ++l)
        m_pointers.push_back(words + l * m_step_scores + m_score_begins[entry]);
    return m_pointers;
}

const std::vector<const float*>& NativeAttentionInputs::queries(size_t entry) {
    m_query_pointers.clear();
    for (size_t l = 0; l < m_layers.size(); ++l)
        m_query_pointers.push_back(reinterpret_cast<const float*>(m_words) + m_queries_begin[l] +
                                   m_query_rows[entry] * m_layers[l].heads *
                                       m_layers[l].layout.key_size);
    return m_query_pointers;
}

}  // namespace pagewheel
