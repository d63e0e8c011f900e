// What the attention of each layer is told about evicted caches, and the scores it gives back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "eviction/rotation_table.hpp"
#include "graph/native_attention.hpp"
#include "ops/layer_tables.hpp"
#include "runtime/input_tensor.hpp"
#include "scheduling/batch.hpp"

namespace pagewheel {

/// The input attention_tables of a model whose native attention has per_layer_tables. Its tensor is
/// kept from step to step, at its size, until a batch needs more or a key has to turn further than
/// any before: first come the tables of angles, which stay, then what every step writes anew, then
/// the scores.
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
    struct Table {
        RotationTable table;
        size_t begin = 0;  ///< word of the tensor
    };
    /// Of a layer in the batch.
    struct Rotation {
        size_t num_rotated = 0, width = 1;
    };

    bool rotates(size_t layer) const {
        return m_layers[layer].rotary.dims > 0 && !m_rotation.empty();
    }
    Rotation rotation_of(size_t layer, const Batch& batch) const;
    /// True if a table of angles grew.
    bool grow_rotation(const Batch& batch);
    /// Words that fill() writes for the batch, and those of its scores of one layer.
    size_t count_words(const Batch& batch);
    size_t count_scores(const Batch& batch, const std::vector<size_t>& windows);
    /// A new tensor with the tables of angles in it.
    void allocate(ov::InferRequest& request, size_t words, size_t layer_scores);
    void fill_shared(LayerTablesWriter& writer, const Batch& batch,
                     const std::vector<size_t>& windows, bool scored) const;
    void fill_layer(LayerTablesWriter& writer, size_t layer, const Batch& batch) const;

    InputTensor m_input;
    std::vector<CacheLayer> m_layers;
    std::vector<Table> m_rotation;      // by rotary kind
    std::vector<Rotation> m_of_layers;  // of this step
    size_t m_num_numbers = 0;           // numbers that caches have: the highest plus one
    size_t m_block_size;
    ov::Tensor m_tensor;
    // Words of the tensor: where the step's sections begin, and room for them.
    size_t m_begin = 0, m_capacity = 0;
    size_t m_layer_scores = 0;  // room for the scores of one layer
    // Of this step: where scores begin, and their number per layer.
    size_t m_scores_begin = 0, m_step_scores = 0;
    std::vector<size_t> m_score_begins;    // by batch entry
    std::vector<const float*> m_pointers;  // what scores() returns
};

}  // namespace pagewheel
