// One layer's cache as eviction sees it: keys to read, tokens to move, and keys to rotate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cache/block_pool.hpp"
#include "kernels/cache_layout.hpp"
#include "model/cache_geometry.hpp"
#include "model/rotary.hpp"

namespace pagewheel {

/// The angles of one rotary kind: row e is cos [dims / 2] then sin [dims / 2] of e *
/// inverse_frequencies. Rows are computed in double, as they are first needed.
class RotationTable {
public:
    RotationTable() = default;
    explicit RotationTable(RotaryKind kind) : m_kind(std::move(kind)) {}

    size_t dims() const { return m_kind.dims; }
    size_t num_rows() const { return m_num_rows; }
    /// Numbers in all rows together.
    size_t size() const { return m_values.size(); }
    /// Computes at least rows [0, largest]. True if the table changed, and data() with it.
    bool grow(size_t largest);
    /// f32 [num_rows, dims].
    const float* data() const { return m_values.data(); }

private:
    RotaryKind m_kind;
    size_t m_num_rows = 0;
    std::vector<float> m_values;
};

/// How a block lies in memory.
enum class BlockLayout {
    lanes,  ///< kernels::CacheLayout, of pagewheel's attention
    rows,   ///< [kv_heads][block_size][head size], of OpenVINO's; f32, bf16 or f16
};

/// A view of a layer's blocks; stored bytes are moved as they are, so nothing is rounded again
/// unless keys are rotated in place.
class LayerCache {
public:
    LayerCache(const CacheLayer& layer, uint8_t* key_blocks, uint8_t* value_blocks,
               BlockLayout blocks = BlockLayout::lanes)
        : m_layer(layer), m_keys(key_blocks), m_values(value_blocks), m_blocks(blocks) {}

    const CacheLayer& description() const { return m_layer; }
    const kernels::CacheLayout& layout() const { return m_layer.layout; }
    void copy_block(BlockId from, BlockId to) const;
    /// Token slots [from, from + count) of the table's blocks go to [to, to + count), to <= from.
    void move_tokens(const std::vector<BlockId>& table, size_t from, size_t to, size_t count) const;
    /// The key of each slot s of the table's blocks moves to a position lower by deltas[s], which
    /// rounds it to the cache's format. BlockLayout::rows only. `angles` has a row for each delta.
    void rotate_back(const std::vector<BlockId>& table, const std::vector<int32_t>& deltas,
                     const RotationTable& angles) const;
    /// Keys of slots [first, last) of the table's blocks: out [last - first, kv_heads, key_size].
    void read_keys(const std::vector<BlockId>& table, size_t first, size_t last, float* out) const;
    /// The values alike: out [last - first, kv_heads, value_size].
    void read_values(const std::vector<BlockId>& table, size_t first, size_t last,
                     float* out) const;

private:
    void read(const std::vector<BlockId>& table, size_t first, size_t last, const uint8_t* blocks,
              size_t block_bytes, size_t width, decltype(&kernels::read_key) read_lanes,
              float* out) const;
    uint8_t* keys(BlockId block) const {
        return m_keys + size_t(block) * layout().key_block_bytes();
    }
    uint8_t* values(BlockId block) const {
        return m_values + size_t(block) * layout().value_block_bytes();
    }

    CacheLayer m_layer;
    uint8_t* m_keys;
    uint8_t* m_values;
    BlockLayout m_blocks;
};

}  // namespace pagewheel
