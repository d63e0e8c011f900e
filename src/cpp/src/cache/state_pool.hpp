// Which states are free, who holds the others, and the blocks that they are worth.
#pragma once

#include <cstddef>
#include <vector>

#include "cache/block_pool.hpp"

namespace pagewheel {

/// States are free, held or idle as blocks are. One that is not free holds as many blocks of
/// `blocks` as its memory is worth, which nobody writes meanwhile.
class StatePool {
public:
    /// `blocks_per_state` 0: there are no states.
    StatePool(BlockPool& blocks, size_t blocks_per_state);

    size_t size() const { return m_states.size(); }
    size_t num_held() const { return m_states.num_held(); }
    /// States that the prefix tree alone keeps.
    size_t num_idle() const { return m_states.num_idle(); }
    size_t blocks_per_state() const { return m_blocks_per_state; }
    uint32_t references(StateId state) const { return m_states.references(state); }
    bool is_kept(StateId state) const { return m_states.is_kept(state); }
    bool is_free(StateId state) const { return m_state_blocks[size_t(state)].empty(); }
    const std::vector<BlockId>& blocks_of(StateId state) const {
        return m_state_blocks[size_t(state)];
    }

    /// A state with one reference. Needs blocks_per_state() free blocks.
    StateId take();
    void share(StateId state) { m_states.share(state); }
    void release(StateId state);
    /// The prefix tree keeps a held state from now on, or no longer.
    void keep(StateId state) { m_states.keep(state); }
    void drop(StateId state);

    /// What may cost memory, blocks of states included, in blocks.
    size_t num_touched() const {
        return m_reserved.size() + m_states.num_touched() * m_blocks_per_state;
    }
    std::vector<BlockRange> forget_free() { return m_states.forget_free(); }
    /// Blocks whose memory was not given back when states took them, and that hold nothing.
    std::vector<BlockRange> forget_reserved();

    /// Throws std::logic_error unless each state that is not free, and no other, holds its blocks.
    void check_integrity() const;

private:
    /// Gives back the blocks of a state that has become free.
    void release_blocks(StateId state);

    BlockPool& m_blocks;
    const size_t m_blocks_per_state;
    BlockPool m_states;
    std::vector<std::vector<BlockId>> m_state_blocks;  // by state
    std::vector<BlockId> m_reserved;  // held by states, with memory that is not given back yet
};

}  // namespace pagewheel
