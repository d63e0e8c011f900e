// Pool and prefix tree as one: blocks for sequences, what becomes of them afterwards, and pins.
#pragma once

#include <map>
#include <utility>
#include <vector>

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

    /// How many blocks take() can give.
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

/// Holds the blocks of prefixes as a sequence would, so that they are not evicted.
class PrefixPins {
public:
    explicit PrefixPins(BlockStore& store) : m_store(store) {}

    /// Pins the tokens if all of them are in the tree; how many there are, from the first on.
    size_t pin(const PrefixKey& key, const std::vector<int64_t>& tokens);
    /// Returns false if exactly these tokens were not pinned.
    bool unpin(const PrefixKey& key, const std::vector<int64_t>& tokens);
    /// Puts the pinned prefixes into the tree again, after it was cleared.
    void restore();

    /// How many blocks are pinned, each counted once.
    size_t num_blocks() const { return m_holds.size(); }
    /// Pinned blocks that no sequence holds.
    size_t num_held_by_pins_alone() const;

private:
    using Prefix = std::pair<PrefixKey, std::vector<int64_t>>;

    BlockStore& m_store;
    std::map<Prefix, std::vector<BlockId>> m_pins;
    std::map<BlockId, uint32_t> m_holds;  // how many of the pins hold it
};

}  // namespace pagewheel
