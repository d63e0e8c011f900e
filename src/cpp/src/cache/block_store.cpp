#include "cache/block_store.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace pagewheel {

BlockStore::BlockStore(size_t num_blocks, size_t block_size, size_t blocks_per_state)
    : m_pool(num_blocks),
      m_tree(m_pool, block_size),
      m_blocks_per_state(blocks_per_state),
      m_states(blocks_per_state > 0 ? num_blocks / blocks_per_state : 0),
      m_state_blocks(m_states.size()) {}

void BlockStore::make_room() {
    if (m_pool.num_free() == 0)
        check_invariant(m_tree.evict(), "no block is available of ", m_pool.size());
}

BlockId BlockStore::take() {
    make_room();
    return m_pool.take();
}

StateId BlockStore::take_state() {
    const StateId state = m_states.take();
    std::vector<BlockId>& blocks = m_state_blocks[size_t(state)];
    for (size_t i = 0; i < m_blocks_per_state; ++i) {
        make_room();
        if (m_pool.reserve(blocks.emplace_back())) m_reserved.push_back(blocks.back());
    }
    return state;
}

void BlockStore::release_state(StateId state) {
    m_states.release(state);
    if (m_states.references(state) > 0) return;
    std::vector<BlockId>& blocks = m_state_blocks[size_t(state)];
    for (const BlockId block : blocks) m_pool.release(block);
    blocks.clear();
}

std::vector<BlockRange> BlockStore::forget_free() {
    std::vector<BlockRange> ranges = m_pool.forget_free();
    // Some may be free by now, or hold tokens again.
    for (const BlockId block : m_reserved)
        if (!m_pool.is_touched(block)) ranges.push_back({block, block + 1});
    m_reserved.clear();
    return ranges;
}

void BlockStore::share(BlockId block) {
    m_pool.share(block);
    if (m_pool.references(block) == 1) m_tree.on_held(block);
}

void BlockStore::release(BlockId block) {
    m_pool.release(block);
    if (m_pool.references(block) == 0 && m_pool.is_kept(block)) m_tree.on_released(block);
}

void BlockStore::check_integrity() const {
    m_pool.check_integrity();
    m_tree.check_integrity();
    m_states.check_integrity();
    for (size_t i = 0; i < m_states.size(); ++i) {
        const size_t held = m_states.references(StateId(i)) > 0 ? m_blocks_per_state : 0;
        check_invariant(m_state_blocks[i].size() == held, "state ", i, " holds ",
                        m_state_blocks[i].size(), " blocks, expected ", held);
        for (const BlockId block : m_state_blocks[i])
            check_invariant(m_pool.references(block) == 1 && !m_pool.is_kept(block), "block ",
                            block, " of state ", i, " has another holder");
    }
    check_invariant(m_tree.num_evictable() == m_pool.num_idle(), "the tree can evict ",
                    m_tree.num_evictable(), " blocks, and the pool has ", m_pool.num_idle(),
                    " idle ones");
}

size_t PrefixPins::pin(const PrefixKey& key, const std::vector<int64_t>& tokens) {
    PrefixMatch match;
    m_store.tree().match(key, tokens.data(), tokens.size(), match);
    if (match.num_partial > 0) match.blocks.push_back(match.partial);
    const Prefix prefix{key, tokens};
    const bool is_there = !tokens.empty() && match.num_tokens == tokens.size();
    if (!is_there || m_pins.count(prefix) != 0) return match.num_tokens;
    for (BlockId block : match.blocks) {
        m_store.share(block);
        ++m_holds[block];
    }
    m_pins.emplace(prefix, match.blocks);
    return match.num_tokens;
}

bool PrefixPins::unpin(const PrefixKey& key, const std::vector<int64_t>& tokens) {
    const auto pin = m_pins.find({key, tokens});
    if (pin == m_pins.end()) return false;
    for (auto block = pin->second.rbegin(); block != pin->second.rend(); ++block) {
        if (--m_holds[*block] == 0) m_holds.erase(*block);
        m_store.release(*block);
    }
    m_pins.erase(pin);
    return true;
}

void PrefixPins::restore() {
    for (auto& [prefix, blocks] : m_pins) {
        const auto& [key, tokens] = prefix;
        NodeId parent = m_store.tree().root(key);
        const size_t block_size = m_store.tree().block_size();
        for (size_t i = 0; i < blocks.size(); ++i) {
            const size_t begin = i * block_size;
            const size_t count = std::min(block_size, tokens.size() - begin);
            // Pins are sorted, so a prefix is inserted before its continuations and gets its own
            // block.
            parent = m_store.tree().insert(parent, &tokens[begin], count, blocks[i]);
        }
    }
}

size_t PrefixPins::num_held_by_pins_alone() const {
    return size_t(std::count_if(m_holds.begin(), m_holds.end(), [&](const auto& hold) {
        return m_store.pool().references(hold.first) == hold.second;
    }));
}

}  // namespace pagewheel
