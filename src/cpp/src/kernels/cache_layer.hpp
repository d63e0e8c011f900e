// What one attention layer keeps in the cache.
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/cache_layout.hpp"

namespace pagewheel {

/// How a layer's keys rotate.
struct LayerRotary {
    size_t dims = 0;  ///< 0: not at all, or it is not known: no rotation can be asked for
    bool interleaved = false;
    size_t kind = 0;  ///< of the model's rotary embeddings, each with a trigonometric table
};

/// A layer that has a cache of its own.
struct CacheLayer {
    kernels::CacheLayout layout;
    size_t layer = 0;  ///< its number among the model's layers
    size_t cache = 0;  ///< N of its inputs key_cache.N and value_cache.N
    /// The widest of the layers that read the cache. 0: one sees all of it.
    size_t sliding_window = 0;
    LayerRotary rotary;

    /// Another layer reads the cache through that sliding window, 0: all of it.
    void widen_window(size_t window) {
        const bool all = window == 0 || sliding_window == 0;
        sliding_window = all ? 0 : std::max(sliding_window, window);
    }
};

}  // namespace pagewheel
