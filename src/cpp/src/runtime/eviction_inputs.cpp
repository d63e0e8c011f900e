#include "runtime/eviction_inputs.hpp"

#include <algorithm>

#include "check.hpp"
#include "eviction/ledger.hpp"

namespace pagewheel {
namespace {

InputTensor input(const ov::CompiledModel& model, const std::string& name) {
    InputTensor input(model, name);
    check_invariant(input.exists(), "the model has no input ", name);
    return input;
}

/// The layer's ledger of a sequence that has evicted, else null.
const LayerLedger* ledger_of(const Sequence& sequence, size_t layer) {
    return sequence.eviction && sequence.eviction->num_evicted > 0
               ? &sequence.eviction->layers[layer]
               : nullptr;
}

}  // namespace

EvictionInputs::EvictionInputs(const ov::CompiledModel& model, std::vector<CacheLayer> layers,
                               const std::vector<RotaryKind>& rotary, size_t block_size)
    : m_layers(std::move(layers)), m_block_size(block_size) {
    for (const CacheLayer& layer : m_layers) {
        const std::string number = "." + std::to_string(layer.cache);
        LayerInputs& inputs = m_inputs.emplace_back();
        inputs.block_indices = input(model, "block_indices" + number);
        inputs.rotated = input(model, "rotated_block_indices" + number);
        inputs.deltas = input(model, "rotation_deltas" + number);
        inputs.scores = input(model, "scores" + number);
    }
    m_windows = input(model, "score_aggregation_window");
    for (size_t k = 0; k < rotary.size(); ++k) {
        Table& table = m_rotation.emplace_back();
        table.table = RotationTable(rotary[k]);
        table.exists = std::any_of(m_layers.begin(), m_layers.end(), [&](const CacheLayer& layer) {
            return layer.rotary.kind == k && layer.rotary.dims > 0;
        });
        if (table.exists)
            table.input =
                input(model, "rotation_trig_lut" + (k == 0 ? "" : "." + std::to_string(k)));
    }
}

void EvictionInputs::fill(ov::InferRequest& request, const Batch& batch,
                          const std::vector<size_t>& windows) {
    for (size_t l = 0; l < m_layers.size(); ++l) fill_tables(request, m_inputs[l], l, batch);
    fill_windows(request, batch, windows);
    grow_rotation(request, batch);
}

void EvictionInputs::fill_tables(ov::InferRequest& request, LayerInputs& inputs, size_t layer,
                                 const Batch& batch) {
    const bool rotates = m_layers[layer].rotary.dims > 0 && !m_rotation.empty();
    size_t num_blocks = 0, num_rotated = 0, width = 1;
    for (const BatchEntry& entry : batch.entries) {
        num_blocks += entry.sequence->blocks.size();
        const LayerLedger* ledger = ledger_of(*entry.sequence, layer);
        if (!ledger || !rotates) continue;
        num_rotated += ledger->rotated.size();
        if (ledger->per_token) width = m_block_size;
    }
    auto* table = inputs.block_indices.resize<int32_t>(request, num_blocks);
    auto* rotated = inputs.rotated.resize<int32_t>(request, num_rotated);
    auto* deltas = inputs.deltas.resize<int32_t>(request, num_rotated, width);
    int32_t first = 0;
    for (const BatchEntry& entry : batch.entries) {
        const std::vector<BlockId>& blocks = entry.sequence->blocks;
        const LayerLedger* ledger = ledger_of(*entry.sequence, layer);
        for (size_t i = 0; i < blocks.size(); ++i) *table++ = blocks[ledger ? ledger->entry(i) : i];
        if (ledger && rotates) {
            for (int32_t block : ledger->rotated) *rotated++ = first + block;
            const size_t repeat = ledger->per_token ? 1 : width;
            for (int32_t delta : ledger->deltas) deltas = std::fill_n(deltas, repeat, delta);
        }
        first += int32_t(blocks.size());
    }
}

void EvictionInputs::fill_windows(ov::InferRequest& request, const Batch& batch,
                                  const std::vector<size_t>& windows) {
    size_t contexts = 0;
    m_score_begins.clear();
    for (const BatchEntry& entry : batch.entries) {
        m_score_begins.push_back(contexts);
        contexts += entry.sequence->num_slots() + entry.num_tokens;
    }
    const bool any = std::any_of(windows.begin(), windows.end(), [](size_t w) { return w > 0; });
    auto* values = m_windows.resize<int32_t>(request, any ? windows.size() : 0);
    if (any) std::copy(windows.begin(), windows.end(), values);
    // The operation writes here as much as it needs: it may be larger.
    const size_t needed = any ? contexts : 0;
    for (LayerInputs& inputs : m_inputs)
        if (inputs.scores.size() < std::max(needed, size_t(1)))
            inputs.scores.resize<float>(request, std::max(needed + needed / 2, size_t(1)));
}

void EvictionInputs::grow_rotation(ov::InferRequest& request, const Batch& batch) {
    size_t largest = 0;
    for (const BatchEntry& entry : batch.entries)
        if (entry.sequence->eviction)
            largest = std::max(largest, entry.sequence->eviction->largest_delta);
    for (Table& rotation : m_rotation)
        if (rotation.exists && rotation.table.grow(largest))
            rotation.input.bind(
                request,
                ov::Tensor(ov::element::f32, {rotation.table.num_rows(), rotation.table.dims()},
                           rotation.table.data()));
}

const std::vector<const float*>& EvictionInputs::scores(size_t entry) {
    m_pointers.clear();
    for (LayerInputs& inputs : m_inputs)
        m_pointers.push_back(inputs.scores.data<float>() + m_score_begins[entry]);
    return m_pointers;
}

}  // namespace pagewheel
