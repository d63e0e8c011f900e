// Blocks of earlier tokens that later sequences begin with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cache/block_pool.hpp"
#include "cache/checkpoints.hpp"

namespace pagewheel {

/// Sequences share a prefix only if these are the same: keys and values depend on the adapter, and
/// a salt keeps tenants apart.
struct PrefixKey {
    std::string salt;
    uint64_t adapter = 0;

    bool operator<(const PrefixKey& other) const {
        return std::tie(salt, adapter) < std::tie(other.salt, other.adapter);
    }
    bool operator==(const PrefixKey& other) const {
        return salt == other.salt && adapter == other.adapter;
    }
};

/// What the tree has of a sequence's beginning.
struct PrefixMatch {
    std::vector<BlockId> blocks;  ///< full blocks, to be shared
    BlockId partial = -1;         ///< a block that goes on with num_partial fitting tokens,
    size_t num_partial = 0;       ///< to be copied; 0: none
    size_t num_tokens = 0;        ///< in all
    StateId state = no_state;     ///< after num_tokens, of a model that has states
    /// Tokens whose keys and values are there. Of a model with states, num_tokens ends at the last
    /// checkpoint among them.
    size_t num_in_blocks = 0;
};

/// A radix tree over tokens at block granularity: a node is a block of the pool with the tokens
/// that it holds, at the positions that its depth says. Children are compared as tokens, never by a
/// hash. A node with fewer tokens than a block holds is a leaf. It is *superfluous* if a sibling's
/// tokens begin with all of its own: it goes as soon as nobody holds it, and not before, as the
/// sibling may be evicted while somebody, a pin perhaps, counts on what it holds.
///
/// The tree keeps its blocks in the pool. One that nobody holds is *idle*
/// and may be evicted, the least recently used first, children before parents. Whoever holds a node
/// holds its ancestors, unless it has evicted them from its own cache; then the ancestor's eviction
/// takes the subtree along, whose held blocks stay with their holders. Operations are O(log nodes)
/// per block.
class PrefixTree {
public:
    /// `states` of a model without any has the size 0.
    PrefixTree(BlockPool& pool, size_t block_size, StatePool& states);
    PrefixTree(const PrefixTree&) = delete;
    PrefixTree& operator=(const PrefixTree&) = delete;

    /// The longest beginning of the `count` tokens that is there. Changes nothing.
    void match(const PrefixKey& key, const int64_t* tokens, size_t count, PrefixMatch& match) const;

    NodeId root(const PrefixKey& key);
    /// Puts `count` (1 to block_size) tokens below `parent`, held in `block`, and returns the block
    /// that has them in the tree: another than `block` if they were there. `block` is held; it may
    /// be in the tree with fewer of these tokens.
    BlockId insert(NodeId parent, const int64_t* tokens, size_t count, BlockId block);
    /// Whether a child of `parent` begins with the tokens.
    bool has_child(NodeId parent, const int64_t* tokens, size_t count) const;
    Checkpoints& checkpoints() { return m_checkpoints; }
    const Checkpoints& checkpoints() const { return m_checkpoints; }
    bool contains(NodeId node) const { return node < 0 || !m_nodes[size_t(node)].tokens.empty(); }
    /// The node is in the tree with a block of tokens, and so may have children.
    bool is_full(NodeId node) const {
        return node < 0 || m_nodes[size_t(node)].tokens.size() == m_block_size;
    }

    /// To be called when a kept block gets its first reference, and when it loses its last.
    void on_held(BlockId block);
    void on_released(BlockId block);
    /// A block that was used without being held counts as used now.
    void touch(BlockId block);

    /// Frees the least recently used idle block, and what lies below it. False if none is idle.
    bool evict();
    /// Forgets all, or all that has one of these salts; held blocks stay with their holders.
    void clear(const std::optional<std::set<std::string>>& salts = std::nullopt);

    size_t block_size() const { return m_block_size; }
    /// Calls visitor(key, parent, block, tokens) for every node that is not superfluous, parents
    /// before children.
    template <class Visitor>
    void visit(Visitor&& visitor) const;

    /// When the block was used, in a count of the tree's own: more is later, held ones come last.
    uint64_t last_use(BlockId block) const;

    /// How many blocks are in the tree, and how many of them evict() can free.
    size_t size() const { return m_children.size(); }
    size_t num_evictable() const { return m_num_evictable; }

    /// Throws std::logic_error unless what it says above holds.
    void check_integrity() const;

private:
    struct Node {
        NodeId parent = 0;
        std::vector<int64_t> tokens;  // empty: the block is not in the tree
        uint32_t num_idle_children = 0;
        uint64_t last_use = 0;
    };
    struct Root {
        PrefixKey key;
        size_t num_children = 0;
    };
    /// What a child is looked up by.
    struct Edge {
        NodeId parent;
        const int64_t* tokens;
        size_t count;
    };
    struct EdgeOrder {
        using is_transparent = void;
        const std::vector<Node>* nodes;
        Edge edge(BlockId block) const;
        const Edge& edge(const Edge& edge) const { return edge; }
        template <class A, class B>
        bool operator()(const A& a, const B& b) const {
            return less(edge(a), edge(b));
        }
        static bool less(const Edge& a, const Edge& b);
    };
    using Children = std::set<BlockId, EdgeOrder>;

    size_t common_tokens(BlockId block, const Edge& edge) const;
    /// Shortens a match to the last checkpoint in it.
    void end_at_checkpoint(NodeId root, const int64_t* tokens, PrefixMatch& match) const;
    /// Drops the checkpoints that a child of `parent` with these tokens, which is gone, has left
    /// without a child.
    void drop_checkpoints(NodeId parent, const std::vector<int64_t>& tokens);
    bool is_idle(NodeId node) const;
    bool is_superfluous(BlockId block) const;
    /// Whether an idle node has no idle child: those are evicted next.
    bool is_exposed(NodeId node) const;
    void expose(NodeId node);
    void cover(NodeId node);
    void became_idle(BlockId block);
    void remove_leaf(BlockId block);
    void remove_subtree(BlockId block);
    Children::const_iterator first_child(NodeId node) const;

    BlockPool& m_pool;
    StatePool& m_states;
    Checkpoints m_checkpoints;
    const size_t m_block_size;
    std::vector<Node> m_nodes;  // by block
    Children m_children;        // all nodes but roots, by parent and tokens
    std::map<PrefixKey, NodeId> m_root_ids;
    std::map<NodeId, Root> m_roots;
    NodeId m_next_root = -1;
    std::set<std::pair<uint64_t, BlockId>> m_exposed;  // idle nodes without idle children
    size_t m_num_evictable = 0;
    uint64_t m_clock = 0;
};

template <class Visitor>
void PrefixTree::visit(Visitor&& visitor) const {
    for (const auto& [id, root] : m_roots) {
        std::vector<NodeId> open{id};
        while (!open.empty()) {
            const NodeId parent = open.back();
            open.pop_back();
            for (auto child = first_child(parent);
                 child != m_children.end() && m_nodes[size_t(*child)].parent == parent; ++child) {
                if (is_superfluous(*child)) continue;
                visitor(root.key, parent, *child, m_nodes[size_t(*child)].tokens);
                open.push_back(*child);
            }
        }
    }
}

}  // namespace pagewheel
