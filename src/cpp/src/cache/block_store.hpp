// Pools and prefix tree as one: blocks and states for sequences, what becomes of them afterwards,
// and pins.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "cache/block_pool.hpp"
#include "cache/prefix_tree.hpp"
#include "cache/state_pool.hpp"

namespace pagewheel {

/// Idle blocks of the tree, and its checkpoints' idle states, are as good as free ones: take()
/// evicts them when it has to.
///
/// A state has memory of its own, and holds as many blocks as that is worth: one budget for both.
class BlockStore {
public:
    /// `blocks_per_state` 0: there are no states. The tree keeps at most `max_checkpoints`.
    BlockStore(size_t num_blocks, size_t block_size, size_t blocks_per_state = 0,
               size_t max_checkpoints = 0);

    const BlockPool& pool() const { return m_pool; }
    const PrefixTree& tree() const { return m_tree; }
    PrefixTree& tree() { return m_tree; }

    /// How many blocks take() can give.
    size_t num_available() const {
        return m_pool.num_free() + m_pool.num_idle() + m_states.num_idle() * blocks_per_state();
    }
    /// A block with one reference; needs num_available() > 0.
    BlockId take();
    void share(BlockId block);
    void release(BlockId block);

    size_t blocks_per_state() const { return m_states.blocks_per_state(); }
    const StatePool& states() const { return m_states; }
    /// A state with one reference; needs num_available() >= blocks_per_state().
    StateId take_state();
    void share_state(StateId state) { m_states.share(state); }
    void release_state(StateId state) { m_states.release(state); }

    size_t max_checkpoints() const { return m_max_checkpoints; }
    /// Keeps a held state that has seen the tokens of `parent` and these, if the tree has them
    /// below it. `saves`: see Checkpoints. The least useful checkpoint makes room.
    void keep_checkpoint(NodeId parent, const int64_t* tokens, size_t count, StateId state,
                         size_t saves);

    /// What may cost memory, blocks and states, in blocks.
    size_t num_touched() const { return m_pool.num_touched() + m_states.num_touched(); }
    bool exceeds_budget() const { return num_touched() > m_pool.size(); }
    /// Blocks and states that may cost memory and hold nothing: they count as untouched from now
    /// on.
    std::vector<BlockRange> forget_free();
    std::vector<BlockRange> forget_free_states() { return m_states.forget_free(); }

    /// Throws std::logic_error unless pool and tree agree and each adds up.
    void check_integrity() const;

private:
    /// Evicts until so many blocks are free.
    void make_room(size_t num_blocks);

    BlockPool m_pool;
    StatePool m_states;
    PrefixTree m_tree;
    const size_t m_max_checkpoints;
};

/// Holds the blocks of prefixes as a sequence would, and the states behind them, so that they are
/// not evicted.
class PrefixPins {
public:
    explicit PrefixPins(BlockStore& store) : m_store(store) {}

    /// Pins the tokens if all of them are in the tree; how many there are, from the first on.
    size_t pin(const PrefixKey& key, const std::vector<int64_t>& tokens);
    /// Returns false if exactly these tokens were not pinned.
    bool unpin(const PrefixKey& key, const std::vector<int64_t>& tokens);
    /// Puts the pinned prefixes into the tree again, after it was cleared.
    void restore();

    /// How many blocks are pinned, those of states included, each counted once.
    size_t num_blocks() const { return m_holds.size() + m_num_states * m_store.blocks_per_state(); }
    /// Those of them that no sequence holds.
    size_t num_held_by_pins_alone() const;

private:
    using Prefix = std::pair<PrefixKey, std::vector<int64_t>>;
    struct Pin {
        std::vector<BlockId> blocks;
        StateId state;  // no other pin has it: it has seen other tokens
    };

    BlockStore& m_store;
    std::map<Prefix, Pin> m_pins;
    std::map<BlockId, uint32_t> m_holds;  // how many of the pins hold it
    size_t m_num_states = 0;
};

}  // namespace pagewheel
