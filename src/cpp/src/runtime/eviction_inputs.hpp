// What the attention of each layer is told about evicted caches, and the scores it gives back.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "eviction/rotation_table.hpp"
#include "graph/native_attention.hpp"
#include "runtime/input_tensor.hpp"
#include "scheduling/batch.hpp"

namespace pagewheel {

/// Inputs of a model whose native attention has per_layer_tables. Tensors are kept from step to
/// step and grow; a table of angles grows when a key has to turn further than any before.
class EvictionInputs {
public:
    /// `rotary` empty: nothing is ever rotated.
    EvictionInputs(const ov::CompiledModel& model, std::vector<CacheLayer> layers,
                   const std::vector<RotaryKind>& rotary, size_t block_size);

    const std::vector<CacheLayer>& layers() const { return m_layers; }
    /// `windows` [batch entries]: last new tokens whose attention is wanted, 0: none.
    void fill(ov::InferRequest& request, const Batch& batch, const std::vector<size_t>& windows);
    /// By layer: f32 [tokens held after the step] of a batch entry with a window. Valid until the
    /// next fill().
    const std::vector<const float*>& scores(size_t entry);

private:
    struct LayerInputs {
        InputTensor block_indices, rotated, deltas, scores;
    };
    struct Table {
        RotationTable table;
        InputTensor input;
        bool exists = false;
    };

    void fill_tables(ov::InferRequest& request, LayerInputs& inputs, size_t layer,
                     const Batch& batch);
    void fill_windows(ov::InferRequest& request, const Batch& batch,
                      const std::vector<size_t>& windows);
    void grow_rotation(ov::InferRequest& request, const Batch& batch);

    std::vector<CacheLayer> m_layers;
    std::vector<LayerInputs> m_inputs;  // by layer
    std::vector<Table> m_rotation;      // by rotary kind
    InputTensor m_windows;
    size_t m_block_size;
    std::vector<size_t> m_score_begins;    // by batch entry
    std::vector<const float*> m_pointers;  // what scores() returns
};

}  // namespace pagewheel
