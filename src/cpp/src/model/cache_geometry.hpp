// What a layer keeps in the KV cache, and the shape of the cache, read off a compiled model.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "kernels/cache_layout.hpp"
#include "model/rotary.hpp"
#include "openvino/core/shape.hpp"
#include "openvino/core/type/element_type.hpp"
#include "openvino/runtime/compiled_model.hpp"
#include "ops/native_region.hpp"

namespace pagewheel {

/// How a layer's keys rotate. `dims` is 0 where they do not, or where it is not known: then no
/// rotation can be asked for.
struct LayerRotary : RotaryKind {
    size_t kind = 0;  ///< of the model's rotary embeddings, each with a trigonometric table

    /// Undoes the rotation by `position` of rows f32 [num_rows, row_size]. Pairs become (i, i
    /// + dims / 2) however the model orders them.
    void unrotate(int64_t position, size_t num_rows, size_t row_size, float* rows) const;
};

/// What the description says of a layer.
LayerRotary rotary_of_layer(const RotaryDescription& rotary, size_t layer);

/// A layer that has a cache of its own.
struct CacheLayer {
    kernels::CacheLayout layout;
    size_t layer = 0;  ///< its number among the model's layers
    size_t cache = 0;  ///< N of its inputs key_cache.N and value_cache.N
    /// The widest of the layers that read the cache. 0: one sees all of it.
    size_t sliding_window = 0;
    LayerRotary rotary;
    size_t heads = 0;  ///< of the queries

    /// Another layer reads the cache through that sliding window, 0: all of it.
    void widen_window(size_t window) {
        const bool all = window == 0 || sliding_window == 0;
        sliding_window = all ? 0 : std::max(sliding_window, window);
    }
};

/// One cache of the model: all blocks of one layer's keys or values, or all its states.
struct CachePort {
    bool in_directory;  ///< it is not an input, but one that the input cache_directory names
    size_t index;       ///< in the directory, or of the compiled model's inputs
    ov::element::Type type;
    ov::Shape block_shape;  ///< without the first dimension, the number of blocks or states

    /// Of one block or state.
    size_t block_bytes() const;
    ov::Shape shape(size_t num_blocks) const;
};

/// The memory of all layers: pages, which hold a block of tokens each, and states, of one sequence
/// each. A state is never copied: a step reads one and writes another, or the same. It needs no
/// zeros: a sequence without tokens reads none. Without pages a block counts as 1/256 of a state,
/// which bounds their number, and has no memory.
struct CacheGeometry {
    std::vector<CachePort> ports;   ///< key_cache.0, value_cache.0, key_cache.1, ...
    std::vector<CachePort> states;  ///< conv_state_table.0, gated_delta_state_table.0, ...
    size_t block_size = 0;          ///< tokens of a block
    size_t block_bytes = 0;         ///< of one block in all layers, keys and values

    size_t state_bytes = 0;  ///< of one state in all layers; 0: no layer keeps any

    /// How many blocks take the memory of a state.
    size_t blocks_per_state() const { return (state_bytes + block_bytes - 1) / block_bytes; }

    size_t directory_index = 0;  ///< of the input cache_directory, if any port is in it
};

/// The plugin chose types and layouts when it compiled; nothing here knows the device. `directory`
/// are the caches that the model's input cache_directory names. Throws Error if the
/// model has no paged cache or its shape is not settled.
CacheGeometry read_cache_geometry(const ov::CompiledModel& model,
                                  const std::vector<CacheInput>& directory = {});

}  // namespace pagewheel
