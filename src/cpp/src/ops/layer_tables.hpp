// The tables of a batch whose layers evict, of all layers in one tensor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "openvino/runtime/tensor.hpp"

namespace pagewheel {

/// One i32 tensor in place of what PagedAttention takes from its input past_lens on, for all layers
/// of a model: each input of each layer costs the plugin time at every inference.
///
/// Words: the number of layers; where scores begin, which is the end of all that is read; begin and
/// size of each section, shared ones, then those of layer after layer; then the sections in any
/// order. Sections of layers may be the same one. Floats are stored as they are. The tensor may be
/// larger than it has to be, so that its shape stays the same from step to step.
struct LayerTables {
    enum Shared : size_t {
        past_lens,
        subsequence_begins,
        block_indices_begins,
        score_windows,
        num_shared
    };
    enum OfLayer : size_t {
        block_indices,
        rotated_block_indices,
        rotation_deltas,    ///< as many per rotated block as the block has tokens, or one
        rotation_trig_lut,  ///< f32 [rows, rotary dims]
        scores,             ///< f32, written; after all other sections
        num_of_layer
    };
    struct Section {
        const int32_t* values = nullptr;
        size_t size = 0;
    };
    Section shared[num_shared], own[num_of_layer];

    /// Views. Throws std::invalid_argument if the tensor is no such thing, or a section leads out
    /// of it, or scores would be written over what is read.
    LayerTables(const ov::Tensor& packed, size_t layer);

    static constexpr size_t index_of(size_t layer, OfLayer section) {
        return num_shared + layer * num_of_layer + section;
    }
    /// Words before the first section.
    static constexpr size_t num_directory_words(size_t layers) {
        return 2 + 2 * index_of(layers, block_indices);
    }
};

/// Writes sections one after the other into memory that is large enough for them.
class LayerTablesWriter {
public:
    /// All sections are empty.
    LayerTablesWriter(int32_t* words, size_t num_layers);
    /// Goes on with tables that are there, at word `end`.
    static LayerTablesWriter resume(int32_t* words, size_t end) { return {words, end, {}}; }

    /// A place for `size` words; its contents are the caller's to fill.
    int32_t* add(size_t section, size_t size);
    /// Sections are added from that word on.
    void go_on_at(size_t word) { m_end = word; }
    void place(size_t section, size_t begin, size_t size);
    /// What is added from here on are scores.
    void begin_scores() { m_words[1] = int32_t(m_end); }
    size_t end() const { return m_end; }

private:
    struct Resumed {};
    LayerTablesWriter(int32_t* words, size_t end, Resumed) : m_words(words), m_end(end) {}

    int32_t* m_words;
    size_t m_end;
};

}  // namespace pagewheel
