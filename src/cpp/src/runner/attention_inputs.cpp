#include "runner/attention_inputs.hpp"

#include <algorithm>

namespace pagewheel {

void fill_extents(const Batch& batch, BatchExtents extents, int32_t* table) {
    int32_t num_tokens = 0, num_blocks = 0;
    for (const BatchEntry& entry : batch.entries) {
        const std::vector<BlockId>& blocks = entry.sequence->blocks;
        *extents.past_lens++ = int32_t(entry.sequence->num_slots());
        *extents.subsequence_begins++ = num_tokens;
        *extents.block_indices_begins++ = num_blocks;
        num_tokens += int32_t(entry.num_tokens);
        num_blocks += int32_t(blocks.size());
        if (table) table = std::copy(blocks.begin(), blocks.end(), table);
    }
    *extents.subsequence_begins = num_tokens;
    *extents.block_indices_begins = num_blocks;
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
