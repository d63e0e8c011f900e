// Pool and prefix tree as one: blocks for sequences, and what becomes of them afterwards.
#pragma once

#include "cache/block_pool.hpp"
#include "cache/prefix_tree.hpp"

namespace pagewheel {

/// Idle blocks of the tree are as good as free ones: take() evicts them when it has to.
class BlockStore {
public:
    BlockStore(size_t num_blocks, size_t block_size);

    const BlockPool& pool() const { return m_pool; }
    const PrefixTree& tree() const { return m_tree; }
    PrefixTree& tree() { return m_tree; }

    /// Blocks that take() can give.
    size_t num_available() const { return m_pool.num_free() + m_pool.num_idle(); }
    /// A block with one reference; needs num_available() > 0.
    BlockId take();
    void share(BlockId block);
    void release(BlockId block);
    std::vector<BlockRange> forget_free() { return m_pool.forget_free(); }

    /// Throws std::logic_error unless pool and tree agree and each adds up.
    void check_integrity() const;

private:
    BlockPool m_pool;
    PrefixTree m_tree;
};

}  // namespace pagewheel
