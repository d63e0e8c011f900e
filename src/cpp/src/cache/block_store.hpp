// Pools and prefix tree as one: blocks and states for sequences, what becomes of them afterwards,
// and pins.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "cache/block_pool.hpp"
#include "cache/prefix_tree.hpp"

namespace pagewheel {

/// Idle blocks of the tree are as good as free ones: take() evicts them when it has to.
///
/// A state has memory of its own, and holds as many blocks as that is worth, which nobody writes
/// meanwhile: one budget for both. States have references as blocks have, and none is kept.
class BlockStore {
public:
    /// `blocks_per_state` 0: there are no states.
    BlockStore(size_t num_blocks, size_t block_size, size_t blocks_per_state = 0);

    const BlockPool& pool() const { return m_pool; }
    const PrefixTree& tree() const { return m_tree; }
    PrefixTree& tree() { return m_tree; }

    /// How many blocks take() can give.
    size_t num_available() const { return m_pool.num_free() + m_pool.num_idle(); }
    /// A block with one reference; needs num_available() > 0.
    BlockId take();
    void share(BlockId block);
    void release(BlockId block);

    size_t blocks_per_state() const { return m_blocks_per_state; }
    const BlockPool& states() const { return m_states; }
    /// The blocks that a held state holds.
    const std::vector<BlockId>& blocks_of(StateId state) const {
        return m_state_blocks[size_t(state)];
    }
    /// A state with one reference; needs num_available() >= blocks_per_state().
    StateId take_state();
    void share_state(StateId state) { m_states.share(state); }
    void release_state(StateId state);

    /// What may cost memory, blocks and states, in blocks.
    size_t num_touched() const {
        return m_pool.num_touched() + m_reserved.size() +
               m_states.num_touched() * m_blocks_per_state;
    }
    bool exceeds_budget() const { return num_touched() > m_pool.size(); }
    /// Blocks and states that may cost memory and hold nothing: they count as untouched from now
    /// on.
    std::vector<BlockRange> forget_free();
    std::vector<BlockRange> forget_free_states() { return m_states.forget_free(); }

    /// Throws std::logic_error unless pool and tree agree and each adds up.
    void check_integrity() const;

private:
    void make_room();

    BlockPool m_pool;
    PrefixTree m_tree;
    const size_t m_blocks_per_state;
    BlockPool m_states;
    std::vector<std::vector<BlockId>> m_state_blocks;  // by state
    std::vector<BlockId> m_reserved;  // held by states, with memory that is not given back yet
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
