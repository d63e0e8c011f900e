#include "cache/checkpoints.hpp"

#include <algorithm>
#include <iterator>

namespace pagewheel {

Checkpoints::Found Checkpoints::find(NodeId parent, const int64_t* tokens, size_t count) const {
    if (m_checkpoints.empty()) return {};
    Place place{parent, {tokens, tokens + count}};
    while (!place.second.empty()) {
        const auto next = m_checkpoints.upper_bound(place);
        if (next == m_checkpoints.begin()) return {};
        const auto& [found, checkpoint] = *std::prev(next);
        if (found.first != parent) return {};
        // No beginning of the tokens that has a state is longer than what the two have in common.
        const size_t most = std::min(found.second.size(), place.second.size());
        const auto end = found.second.begin() + ptrdiff_t(most);
        const auto common =
            size_t(std::mismatch(found.second.begin(), end, place.second.begin()).first -
                   found.second.begin());
        if (common == found.second.size()) return {checkpoint.state, common};
        place.second.resize(common);
    }
    return {};
}

void Checkpoints::keep(NodeId parent, const int64_t* tokens, size_t count, StateId state,
                       size_t saves) {
    const auto [place, is_new] =
        m_checkpoints.emplace(Place{parent, {tokens, tokens + count}}, Checkpoint{state, saves});
    if (!is_new) return touch(place->second.state);
    m_states.keep(state);
    m_places[size_t(state)] = place;
    touch(state);
}

void Checkpoints::touch(StateId state) {
    Checkpoint& checkpoint = m_places[size_t(state)]->second;
    m_by_rank.erase({checkpoint.rank, state});
    checkpoint.rank = m_last_rank + checkpoint.saves;
    if (!checkpoint.is_pinned) m_by_rank.emplace(checkpoint.rank, state);
}

void Checkpoints::set_pinned(StateId state, bool is_pinned) {
    m_places[size_t(state)]->second.is_pinned = is_pinned;
    touch(state);
}

void Checkpoints::drop(StateId state) {
    m_by_rank.erase({m_places[size_t(state)]->second.rank, state});
    m_checkpoints.erase(m_places[size_t(state)]);
    m_states.drop(state);
}

bool Checkpoints::evict() {
    if (m_by_rank.empty()) return false;
    m_last_rank = m_by_rank.begin()->first;
    drop(m_by_rank.begin()->second);
    return true;
}

bool Checkpoints::evict_idle() {
    const auto idle = std::find_if(m_by_rank.begin(), m_by_rank.end(), [&](const auto& each) {
        return m_states.references(each.second) == 0;
    });
    if (idle == m_by_rank.end()) return false;
    m_last_rank = std::max(m_last_rank, idle->first);
    drop(idle->second);
    return true;
}

}  // namespace pagewheel
