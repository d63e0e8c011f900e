#include "runner/attention_inputs.hpp"

#include <algorithm>

namespace pagewheel {

namespace {

/// Fills extents entry by entry.
class ExtentsWriter {
public:
    explicit ExtentsWriter(BatchExtents extents) : m_at(extents) {}

    void add(const BatchEntry& entry) {
        *m_at.past_lens++ = int32_t(entry.sequence->num_slots());
        *m_at.subsequence_begins++ = m_token;
        *m_at.block_indices_begins++ = m_block;
        m_token += int32_t(entry.num_tokens);
        m_block += int32_t(entry.sequence->blocks.size());
    }
    void end() const {
        *m_at.subsequence_begins = m_token;
        *m_at.block_indices_begins = m_block;
    }

private:
    BatchExtents m_at;
    int32_t m_token = 0, m_block = 0;
};

}  // namespace

void fill_extents(const Batch& batch, BatchExtents extents) {
    ExtentsWriter writer(extents);
    for (const BatchEntry& entry : batch.entries) writer.add(entry);
    writer.end();
}

void fill_extents_and_blocks(const Batch& batch, BatchExtents extents, int32_t* table) {
    ExtentsWriter writer(extents);
    for (const BatchEntry& entry : batch.entries) {
        writer.add(entry);
        const std::vector<BlockId>& blocks = entry.sequence->blocks;
        table = std::copy(blocks.begin(), blocks.end(), table);
    }
    writer.end();
}

size_t count_blocks(const Batch& batch) {
    size_t blocks = 0;
    for (const BatchEntry& entry : batch.entries) blocks += entry.sequence->blocks.size();
    return blocks;
}

const SlotTable* slot_table_of(const Sequence& sequence, size_t layer) {
    return sequence.eviction && sequence.eviction->num_evicted > 0
               ? &sequence.eviction->layers[layer]
               : nullptr;
}

void fill_blocks(const Batch& batch, size_t layer, int32_t* table) {
    for (const BatchEntry& entry : batch.entries) {
        const std::vector<BlockId>& blocks = entry.sequence->blocks;
        if (const SlotTable* slots = slot_table_of(*entry.sequence, layer))
            for (size_t i = 0; i < blocks.size(); ++i) *table++ = blocks[slots->entry(i)];
        else
            table = std::copy(blocks.begin(), blocks.end(), table);
    }
}

size_t fill_score_begins(const Batch& batch, std::vector<size_t>& begins) {
    size_t contexts = 0;
    begins.clear();
    for (const BatchEntry& entry : batch.entries) {
        begins.push_back(contexts);
        contexts += entry.sequence->num_slots() + entry.num_tokens;
    }
    return contexts;
}

}  // namespace pagewheel
