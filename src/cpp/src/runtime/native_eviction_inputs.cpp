#include "runtime/native_eviction_inputs.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "check.hpp"
#include "eviction/ledger.hpp"
#include "graph/port_names.hpp"

namespace pagewheel {
namespace {

/// The layer's ledger of a sequence that has evicted, else null.
const LayerLedger* ledger_of(const Sequence& sequence, size_t layer) {
    return sequence.eviction && sequence.eviction->num_evicted > 0
               ? &sequence.eviction->layers[layer]
               : nullptr;
}

size_t num_blocks(const Batch& batch) {
    size_t blocks = 0;
    for (const BatchEntry& entry : batch.entries) blocks += entry.sequence->blocks.size();
    return blocks;
}

}  // namespace

NativeEvictionInputs::NativeEvictionInputs(const ov::CompiledModel& model,
                                           std::vector<CacheLayer> layers,
                                           const std::vector<RotaryKind>& rotary, size_t block_size)
    : EvictionInputs(std::move(layers)),
      m_input(model, ports::attention_tables),
      m_of_layers(m_layers.size()),
      m_block_size(block_size) {
    check_invariant(m_input.exists(), "the model has no input attention_tables");
    for (const CacheLayer& layer : m_layers)
        m_num_numbers = std::max(m_num_numbers, layer.cache + 1);
    for (const RotaryKind& kind : rotary) m_rotation.push_back({RotationTable(kind)});
}

void NativeEvictionInputs::fill(ov::InferRequest& request, const Batch& batch,
                                const std::vector<size_t>& windows) {
    const size_t layer_scores = count_scores(batch, windows);
    if (!same_sources(batch) || m_tables_end == 0 || layer_scores > m_layer_scores) {
        m_tables_end = 0;  // none are there until they are written below
        const bool turns_further = grow_rotation(batch);
        const size_t words = count_words(batch);
        if (!m_tensor || turns_further || words > m_capacity || layer_scores > m_layer_scores)
            allocate(
                request, words > m_capacity ? 2 * words : m_capacity,
                layer_scores > m_layer_scores ? layer_scores + layer_scores / 2 : m_layer_scores);
    }
    auto* words = m_tensor.data<int32_t>();
    if (m_tables_end == 0) {
        LayerTablesWriter writer(words, m_num_numbers);
        writer.go_on_at(m_begin);
        fill_tables(writer, batch);
        m_tables_end = writer.end();
    }
    fill_extents(batch, m_extents);
    std::copy(windows.begin(), windows.end(), m_windows);
    LayerTablesWriter writer = LayerTablesWriter::resume(words, m_tables_end);
    writer.begin_scores();
    m_step_scores = layer_scores;
    m_scores_begin = writer.end();
    for (const CacheLayer& layer : m_layers)
        writer.add(LayerTables::index_of(layer.cache, LayerTables::scores), layer_scores);
}

bool NativeEvictionInputs::same_sources(const Batch& batch) {
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

NativeEvictionInputs::Rotation NativeEvictionInputs::rotation_of(size_t layer,
                                                                 const Batch& batch) const {
    Rotation rotation;
    if (!rotates(layer)) return rotation;
    for (const BatchEntry& entry : batch.entries)
        if (const LayerLedger* ledger = ledger_of(*entry.sequence, layer)) {
            rotation.num_rotated += ledger->rotated.size();
            if (ledger->per_token) rotation.width = m_block_size;
        }
    return rotation;
}

bool NativeEvictionInputs::grow_rotation(const Batch& batch) {
    size_t largest = 0;
    for (const BatchEntry& entry : batch.entries)
        if (entry.sequence->eviction)
            largest = std::max(largest, entry.sequence->eviction->largest_delta);
    bool grew = false;
    for (Table& rotation : m_rotation) grew = rotation.table.grow(largest) || grew;
    return grew;
}

size_t NativeEvictionInputs::count_words(const Batch& batch) {
    const size_t blocks = num_blocks(batch);
    size_t words = LayerTables::num_shared * (batch.entries.size() + 1);
    for (size_t l = 0; l < m_layers.size(); ++l) {
        const Rotation rotation = m_of_layers[l] = rotation_of(l, batch);
        words += blocks + rotation.num_rotated * (1 + rotation.width);
    }
    return words;
}

size_t NativeEvictionInputs::count_scores(const Batch& batch, const std::vector<size_t>& windows) {
    size_t contexts = 0;
    m_score_begins.clear();
    for (const BatchEntry& entry : batch.entries) {
        m_score_begins.push_back(contexts);
        contexts += entry.sequence->num_slots() + entry.num_tokens;
    }
    const bool any = std::any_of(windows.begin(), windows.end(), [](size_t w) { return w > 0; });
    return any ? contexts : 0;
}

void NativeEvictionInputs::allocate(ov::InferRequest& request, size_t words, size_t layer_scores) {
    m_begin = LayerTables::num_directory_words(m_num_numbers);
    for (Table& rotation : m_rotation) {
        constexpr size_t cache_line = 16;  // words
        rotation.begin = (m_begin + cache_line - 1) / cache_line * cache_line;
        m_begin = rotation.begin + rotation.table.size();
    }
    m_capacity = words;
    m_layer_scores = layer_scores;
    const size_t size = m_begin + m_capacity + m_layers.size() * m_layer_scores;
    check_argument(size <= size_t(std::numeric_limits<int32_t>::max()),
                   "the batch's tables and scores of all layers are ", size,
                   " entries, allowed: fewer than 2^31");
    m_tensor = ov::Tensor(ov::element::i32, {size});
    for (Table& rotation : m_rotation)
        if (rotation.table.size() > 0)
            std::memcpy(m_tensor.data<int32_t>() + rotation.begin, rotation.table.data(),
                        rotation.table.size() * sizeof(float));
    m_input.bind(request, m_tensor);
}

void NativeEvictionInputs::fill_tables(LayerTablesWriter& writer, const Batch& batch) {
    const size_t sequences = batch.entries.size();
    m_extents = {writer.add(LayerTables::past_lens, sequences),
                 writer.add(LayerTables::subsequence_begins, sequences + 1),
                 writer.add(LayerTables::block_indices_begins, sequences + 1)};
    m_windows = writer.add(LayerTables::score_windows, sequences);
    for (size_t l = 0; l < m_layers.size(); ++l) fill_layer(writer, l, batch);
}

void NativeEvictionInputs::fill_layer(LayerTablesWriter& writer, size_t layer,
                                      const Batch& batch) const {
    const auto section = [&](LayerTables::OfLayer which) {
        return LayerTables::index_of(m_layers[layer].cache, which);
    };
    const auto [num_rotated, width] = m_of_layers[layer];
    int32_t* table = writer.add(section(LayerTables::block_indices), num_blocks(batch));
    int32_t* rotated = writer.add(section(LayerTables::rotated_block_indices), num_rotated);
    int32_t* deltas = writer.add(section(LayerTables::rotation_deltas), num_rotated * width);
    if (num_rotated > 0) {
        const Table& angles = m_rotation[m_layers[layer].rotary.kind];
        writer.place(section(LayerTables::rotation_trig_lut), angles.begin, angles.table.size());
    }
    int32_t first = 0;
    for (const BatchEntry& entry : batch.entries) {
        const std::vector<BlockId>& blocks = entry.sequence->blocks;
        const LayerLedger* ledger = ledger_of(*entry.sequence, layer);
        if (!ledger) {
            table = std::copy(blocks.begin(), blocks.end(), table);
        } else {
            for (size_t i = 0; i < blocks.size(); ++i) *table++ = blocks[ledger->entry(i)];
            if (rotates(layer)) {
                for (int32_t block : ledger->rotated) *rotated++ = first + block;
                if (ledger->per_token || width == 1)
                    deltas = std::copy(ledger->deltas.begin(), ledger->deltas.end(), deltas);
                else
                    for (int32_t delta : ledger->deltas) deltas = std::fill_n(deltas, width, delta);
            }
        }
        first += int32_t(blocks.size());
    }
}

const std::vector<const float*>& NativeEvictionInputs::scores(ov::InferRequest&, size_t entry) {
    // Floats in a tensor of words, as the attention wrote them.
    const auto* words = static_cast<const float*>(m_tensor.data()) + m_scores_begin;
    m_pointers.clear();
    for (size_t l = 0; l < m_layers.size(); ++l)
        m_pointers.push_back(words + l * m_step_scores + m_score_begins[entry]);
    return m_pointers;
}

}  // namespace pagewheel
