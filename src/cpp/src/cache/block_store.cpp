#include "cache/block_store.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace pagewheel {

BlockStore::BlockStore(size_t num_blocks, size_t block_size, size_t blocks_per_state,
                       size_t max_checkpoints)
    : m_pool(num_blocks),
      m_states(m_pool, blocks_per_state),
      m_tree(m_pool, block_size, m_states),
      m_max_checkpoints(max_checkpoints) {}

void BlockStore::make_room(size_t num_blocks) {
    while (m_pool.num_free() < num_blocks)
        check_invariant(m_tree.evict() || m_tree.checkpoints().evict_idle(),
                        "no block is available of ", m_pool.size());
}

BlockId BlockStore::take() {
    make_room(1);
    return m_pool.take();
}

StateId BlockStore::take_state() {
    make_room(blocks_per_state());
    return m_states.take();
}

void BlockStore::keep_checkpoint(NodeId parent, const int64_t* tokens, size_t count, StateId state,
                                 size_t saves) {
    if (!m_tree.has_child(parent, tokens, count)) return;
    Checkpoints& checkpoints = m_tree.checkpoints();
    const bool is_there = checkpoints.find(parent, tokens, count).num_tokens == count;
    if (!is_there && checkpoints.size() >= m_max_checkpoints && !checkpoints.evict()) return;
    checkpoints.keep(parent, tokens, count, state, saves);
}

std::vector<BlockRange> BlockStore::forget_free() {
    std::vector<BlockRange> ranges = m_pool.forget_free();
    const std::vector<BlockRange> reserved = m_states.forget_reserved();
    ranges.insert(ranges.end(), reserved.begin(), reserved.end());
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
    if (match.state != no_state) {
        m_store.share_state(match.state);
        m_store.tree().checkpoints().set_pinned(match.state, true);
        ++m_num_states;
    }
    m_pins.emplace(prefix, Pin{match.blocks, match.state});
    return match.num_tokens;
}

bool PrefixPins::unpin(const PrefixKey& key, const std::vector<int64_t>& tokens) {
    const auto pin = m_pins.find({key, tokens});
    if (pin == m_pins.end()) return false;
    const auto& [blocks, state] = pin->second;
    if (state != no_state) {
        m_store.tree().checkpoints().set_pinned(state, false);
        m_store.release_state(state);
        --m_num_states;
    }
    for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
        if (--m_holds[*block] == 0) m_holds.erase(*block);
        m_store.release(*block);
    }
    m_pins.erase(pin);
    return true;
}

void PrefixPins::restore() {
    for (auto& [prefix, pin] : m_pins) {
        const auto& [key, tokens] = prefix;
        const auto& [blocks, state] = pin;
        NodeId parent = m_store.tree().root(key);
        const size_t block_size = m_store.tree().block_size();
        for (size_t i = 0; i < blocks.size(); ++i) {
            const size_t begin = i * block_size;
            const size_t count = std::min(block_size, tokens.size() - begin);
            // Pins are sorted, so a prefix is inserted before its continuations and gets its own
            // block.
            const NodeId node = m_store.tree().insert(parent, &tokens[begin], count, blocks[i]);
            if (state != no_state && !m_store.states().is_kept(state) && i + 1 == blocks.size()) {
                m_store.keep_checkpoint(parent, &tokens[begin], count, state, tokens.size());
                m_store.tree().checkpoints().set_pinned(state, true);
            }
            parent = node;
        }
    }
}

size_t PrefixPins::num_held_by_pins_alone() const {
    const auto num_blocks = std::count_if(m_holds.begin(), m_holds.end(), [&](const auto& hold) {
        return m_store.pool().references(hold.first) == hold.second;
    });
    const auto num_states = std::count_if(m_pins.begin(), m_pins.end(), [&](const auto& pin) {
        const StateId state = pin.second.state;
        return state != no_state && m_store.states().references(state) == 1;
    });
    return size_t(num_blocks) + size_t(num_states) * m_store.blocks_per_state();
}

}  // namespace pagewheel
