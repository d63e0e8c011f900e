// What one attention layer keeps in the cache.
#pragma once

#include <cstddef>

#include "kernels/cache_layout.hpp"

namespace pagewheel {

/// How a layer's keys turn.
struct LayerRotary {
    size_t dims = 0;  ///< 0: not at all, or it is not known: no rotation can be asked for
    bool interleaved = false;
    size_t kind = 0;  ///< of the model's rotary embeddings, each with a trigonometric table
};

/// A layer that has a cache of its own.
struct CacheLayer {
    kernels::CacheLayout layout;
    size_t layer = 0;           ///< its number among the model's layers
    size_t cache = 0;           ///< N of its inputs key_cache.N and value_cache.N
    size_t sliding_window = 0;  ///< 0: none
    LayerRotary rotary;
};

}  // namespace pagewheel
