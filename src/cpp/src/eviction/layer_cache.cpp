#include "eviction/layer_cache.hpp"

#include <algorithm>
#include <cstring>

namespace pagewheel {

void LayerCache::copy_block(BlockId from, BlockId to) const {
    std::memcpy(keys(to), keys(from), layout().key_block_bytes());
    std::memcpy(values(to), values(from), layout().value_block_bytes());
}

void LayerCache::move_tokens(const std::vector<BlockId>& table, size_t from, size_t to,
                             size_t count) const {
    const size_t size = layout().block_size;
    while (count > 0) {
        const size_t run = std::min({count, size - from % size, size - to % size});
        const BlockId source = table[from / size], target = table[to / size];
        kernels::copy_keys(layout(), keys(source), from % size, keys(target), to % size, run);
        kernels::copy_values(layout(), values(source), from % size, values(target), to % size, run);
        from += run;
        to += run;
        count -= run;
    }
}

void LayerCache::read_keys(const std::vector<BlockId>& table, size_t first, size_t last,
                           float* out) const {
    const size_t size = layout().block_size;
    for (size_t slot = first; slot < last; ++slot)
        for (size_t head = 0; head < layout().kv_heads; ++head, out += layout().key_size)
            kernels::read_key(layout(), keys(table[slot / size]), slot % size, head, out);
}

}  // namespace pagewheel
