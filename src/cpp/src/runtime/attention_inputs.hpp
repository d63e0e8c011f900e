// What attention is told about a batch: lengths, block tables, evicted caches; and the scores it
// gives back.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "eviction/slot_table.hpp"
#include "graph/native_attention.hpp"
#include "openvino/runtime/infer_request.hpp"
#include "scheduling/batch.hpp"

namespace pagewheel {

/// Fills the inputs of one kind of attention. Filling them allocates nothing unless a batch is
/// larger than any before.
class AttentionInputs {
public:
    /// `layers` are those whose caches are evicted from, in the order of their caches; none:
    /// nothing is. Throws InvalidArgument if rotary.dims exceeds the head size.
    explicit AttentionInputs(std::vector<CacheLayer> layers) : m_layers(std::move(layers)) {
        for (const CacheLayer& layer : m_layers)
            check_argument(layer.rotary.dims <= layer.layout.key_size,
                           "the model folder describes ", layer.rotary.dims,
                           " rotary dimensions of heads that have ", layer.layout.key_size);
    }
    virtual ~AttentionInputs() = default;
    AttentionInputs(const AttentionInputs&) = delete;
    AttentionInputs& operator=(const AttentionInputs&) = delete;

    const std::vector<CacheLayer>& layers() const { return m_layers; }
    /// `windows` [batch entries]: last new tokens whose attention is wanted, 0: none; or empty.
    virtual void fill(ov::InferRequest& request, const Batch& batch,
                      const std::vector<size_t>& windows) = 0;
    /// After the inference, by layer: f32 [tokens held after the step] of a batch entry with a
    /// window. Valid until the next fill().
    virtual const std::vector<const float*>& scores(ov::InferRequest& request, size_t entry) = 0;

protected:
    std::vector<CacheLayer> m_layers;
};

/// Of each sequence of a batch: tokens that are in the cache, and where its new tokens and its part
/// of the block table begin.
struct BatchExtents {
    int32_t* past_lens;             ///< [sequences]
    int32_t* subsequence_begins;    ///< [sequences + 1]
    int32_t* block_indices_begins;  ///< [sequences + 1]
};

void fill_extents(const Batch& batch, BatchExtents extents);

/// The same, and the block tables of sequences that have not evicted, in one pass over sequences
/// that lie all over memory.
void fill_extents_and_blocks(const Batch& batch, BatchExtents extents, int32_t* table);

size_t count_blocks(const Batch& batch);

/// The layer's slot table of a sequence that has evicted, else null.
const SlotTable* slot_table_of(const Sequence& sequence, size_t layer);

/// Writes the block tables of all sequences, as layer `layer` holds them.
void fill_blocks(const Batch& batch, size_t layer, int32_t* table);

/// Where each entry's scores begin: contexts after the step, one after the other. Returns their
/// sum.
size_t fill_score_begins(const Batch& batch, std::vector<size_t>& begins);

}  // namespace pagewheel
