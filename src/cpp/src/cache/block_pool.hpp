// Which blocks of the KV cache are free, and how many hold each of the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pagewheel {

using BlockId = int32_t;

/// Hands out block ids in [0, size). A block is free, or referenced by the sequences that hold it;
/// only a sequence that holds a block alone writes to it. Every operation is O(1).
class BlockPool {
public:
    explicit BlockPool(size_t num_blocks);

    size_t size() const { return m_references.size(); }
    size_t num_free() const { return m_free.size(); }

    /// A block with one reference. Needs num_free() > 0. The block freed last comes first: its
    /// memory is committed already and perhaps still in a cache.
    BlockId take();
    void share(BlockId block);
    /// Drops a reference; the block is free with the last.
    void release(BlockId block);
    uint32_t references(BlockId block) const { return m_references[block]; }

    /// Throws std::logic_error unless free and referenced blocks add up, each id once.
    void check_integrity() const;

private:
    std::vector<uint32_t> m_references;  // by block; 0 means free
    std::vector<BlockId> m_free;         // a stack
};

}  // namespace pagewheel
