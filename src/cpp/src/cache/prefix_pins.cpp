#include "cache/prefix_pins.hpp"

#include <algorithm>

namespace pagewheel {

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
