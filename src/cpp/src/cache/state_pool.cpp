#include "cache/state_pool.hpp"

#include "base/check.hpp"

namespace pagewheel {

StatePool::StatePool(BlockPool& blocks, size_t blocks_per_state)
    : m_blocks(blocks),
      m_blocks_per_state(blocks_per_state),
      m_states(blocks_per_state > 0 ? blocks.size() / blocks_per_state : 0),
      m_state_blocks(m_states.size()) {}

StateId StatePool::take() {
    const StateId state = m_states.take();
    std::vector<BlockId>& blocks = m_state_blocks[size_t(state)];
    for (size_t i = 0; i < m_blocks_per_state; ++i)
        if (m_blocks.reserve(blocks.emplace_back())) m_reserved.push_back(blocks.back());
    return state;
}

void StatePool::release(StateId state) {
    m_states.release(state);
    if (m_states.references(state) == 0 && !m_states.is_kept(state)) release_blocks(state);
}

void StatePool::drop(StateId state) {
    m_states.drop(state);
    if (m_states.references(state) == 0) release_blocks(state);
}

void StatePool::release_blocks(StateId state) {
    std::vector<BlockId>& blocks = m_state_blocks[size_t(state)];
    for (const BlockId block : blocks) m_blocks.release(block);
    blocks.clear();
}

std::vector<BlockRange> StatePool::forget_reserved() {
    std::vector<BlockRange> ranges;
    // Some may be free by now, or hold tokens again.
    for (const BlockId block : m_reserved)
        if (!m_blocks.is_touched(block)) ranges.push_back({block, block + 1});
    m_reserved.clear();
    return ranges;
}

void StatePool::check_integrity() const {
    m_states.check_integrity();
    for (size_t i = 0; i < m_states.size(); ++i) {
        const bool is_used = m_states.references(StateId(i)) > 0 || m_states.is_kept(StateId(i));
        const size_t held = is_used ? m_blocks_per_state : 0;
        check_invariant(m_state_blocks[i].size() == held, "state ", i, " holds ",
                        m_state_blocks[i].size(), " blocks, expected ", held);
        for (const BlockId block : m_state_blocks[i])
            check_invariant(m_blocks.references(block) == 1 && !m_blocks.is_kept(block), "block ",
                            block, " of state ", i, " has another holder");
    }
}

}  // namespace pagewheel
