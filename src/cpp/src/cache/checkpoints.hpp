// States that the prefix tree keeps, each after exactly the tokens that it has seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "cache/state_pool.hpp"

namespace pagewheel {

/// A node of the prefix tree: that of a block, whose id it is, or, below zero, a root.
using NodeId = int32_t;

/// A checkpoint lies below a full node, after 1 to block_size tokens with which a child of that
/// node begins. Which child does not matter: a state depends on tokens alone.
///
/// The least useful one leaves first, by GreedyDual (Young, "The k-server dual and loose
/// competitiveness for paging", 1994): a checkpoint's rank is what it saves, in tokens, above the
/// rank of the one that left last. A use renews it. So what is not used sinks, the cheaper the
/// sooner.
class Checkpoints {
public:
    explicit Checkpoints(StatePool& states) : m_states(states), m_places(states.size()) {}

    struct Found {
        StateId state = no_state;
        size_t num_tokens = 0;  ///< that the state has seen below the node
    };
    /// The longest beginning of the tokens below `parent` that has a state.
    Found find(NodeId parent, const int64_t* tokens, size_t count) const;
    /// Keeps a held state that the tree does not keep yet. If there is one after these tokens, that
    /// one counts as used instead.
    void keep(NodeId parent, const int64_t* tokens, size_t count, StateId state, size_t saves);
    /// Counts as used.
    void touch(StateId state);
    /// One that is pinned is not evicted.
    void set_pinned(StateId state, bool is_pinned);
    void drop(StateId state);
    /// Drops the least useful one, or of those that nobody holds. False if there is none.
    bool evict();
    bool evict_idle();

    size_t size() const { return m_checkpoints.size(); }
    /// Calls visitor(parent, tokens, state) for each.
    template <class Visitor>
    void visit(Visitor&& visitor) const {
        for (const auto& [place, checkpoint] : m_checkpoints)
            visitor(place.first, place.second, checkpoint.state);
    }

private:
    struct Checkpoint {
        StateId state;
        size_t saves;
        uint64_t rank = 0;
        bool is_pinned = false;
    };
    using Place = std::pair<NodeId, std::vector<int64_t>>;
    using Map = std::map<Place, Checkpoint>;

    StatePool& m_states;
    Map m_checkpoints;
    std::vector<Map::iterator> m_places;               // by state, of those that are kept
    std::set<std::pair<uint64_t, StateId>> m_by_rank;  // those that are not pinned
    uint64_t m_last_rank = 0;                          // of the one that left last
};

}  // namespace pagewheel
