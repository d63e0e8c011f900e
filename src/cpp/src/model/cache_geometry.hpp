// Shape of the KV cache, read off a compiled model.
#pragma once

#include <cstddef>
#include <vector>

#include "openvino/core/shape.hpp"
#include "openvino/core/type/element_type.hpp"
#include "openvino/runtime/compiled_model.hpp"
#include "ops/cache_directory.hpp"

namespace pagewheel {

/// One cache of the model: all blocks of one layer's keys or values.
struct CachePort {
    bool in_directory;  ///< it is not an input, but one that the input cache_directory names
    size_t index;       ///< in the directory, or of the compiled model's inputs
    ov::element::Type type;
    ov::Shape block_shape;  ///< without the first dimension, the number of blocks

    size_t block_bytes() const;
    ov::Shape shape(size_t num_blocks) const;
};

struct CacheGeometry {
    std::vector<CachePort> ports;  ///< key_cache.0, value_cache.0, key_cache.1, ...
    size_t block_size = 0;         ///< tokens of a block
    size_t block_bytes = 0;        ///< of one block in all layers, keys and values

    size_t directory_index = 0;  ///< of the input cache_directory, if any port is in it
};

/// The plugin chose types and layouts when it compiled; nothing here knows the device. `directory`
/// are the caches that the model's input cache_directory names. Throws Error if the
/// model has no paged cache or its shape is not settled.
CacheGeometry read_cache_geometry(const ov::CompiledModel& model,
                                  const std::vector<CacheInput>& directory = {});

}  // namespace pagewheel
