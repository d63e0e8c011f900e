// One layer's part of the cache, as eviction reads and rearranges it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cache/block_pool.hpp"
#include "graph/native_attention.hpp"

namespace pagewheel {

/// A view of a layer's blocks; stored bytes are moved as they are, so nothing is rounded again.
class LayerCache {
public:
    LayerCache(const CacheLayer& layer, uint8_t* key_blocks, uint8_t* value_blocks)
        : m_layer(layer), m_keys(key_blocks), m_values(value_blocks) {}

    const CacheLayer& description() const { return m_layer; }
    const kernels::CacheLayout& layout() const { return m_layer.layout; }
    void copy_block(BlockId from, BlockId to) const;
    /// Token slots [from, from + count) of the table's blocks go to [to, to + count), to <= from.
    void move_tokens(const std::vector<BlockId>& table, size_t from, size_t to, size_t count) const;
    /// Keys of slots [first, last) of the table's blocks: out [last - first, kv_heads, key_size].
    void read_keys(const std::vector<BlockId>& table, size_t first, size_t last, float* out) const;

private:
    uint8_t* keys(BlockId block) const {
        return m_keys + size_t(block) * layout().key_block_bytes();
    }
    uint8_t* values(BlockId block) const {
        return m_values + size_t(block) * layout().value_block_bytes();
    }

    CacheLayer m_layer;
    uint8_t* m_keys;
    uint8_t* m_values;
};

}  // namespace pagewheel
