#include "cache/prefix_tree.hpp"

#include <algorithm>
#include <iterator>

#include "base/check.hpp"

namespace pagewheel {

PrefixTree::Edge PrefixTree::EdgeOrder::edge(BlockId block) const {
    const Node& node = (*nodes)[size_t(block)];
    return {node.parent, node.tokens.data(), node.tokens.size()};
}

bool PrefixTree::EdgeOrder::less(const Edge& a, const Edge& b) {
    if (a.parent != b.parent) return a.parent < b.parent;
    return std::lexicographical_compare(a.tokens, a.tokens + a.count, b.tokens, b.tokens + b.count);
}

PrefixTree::PrefixTree(BlockPool& pool, size_t block_size, StatePool& states)
    : m_pool(pool),
      m_states(states),
      m_checkpoints(states),
      m_block_size(block_size),
      m_nodes(pool.size()),
      m_children(EdgeOrder{&m_nodes}) {}

size_t PrefixTree::common_tokens(BlockId block, const Edge& edge) const {
    const Node& node = m_nodes[size_t(block)];
    if (node.parent != edge.parent) return 0;
    const size_t most = std::min(node.tokens.size(), edge.count);
    return size_t(std::mismatch(edge.tokens, edge.tokens + most, node.tokens.begin()).first -
                  edge.tokens);
}

void PrefixTree::match(const PrefixKey& key, const int64_t* tokens, size_t count,
                       PrefixMatch& match) const {
    match.blocks.clear();
    match.partial = -1;
    match.num_partial = match.num_tokens = match.num_in_blocks = 0;
    match.state = no_state;
    const auto root = m_root_ids.find(key);
    if (root == m_root_ids.end()) return;
    Edge edge{root->second, tokens, m_block_size};
    for (; match.num_tokens + m_block_size <= count; match.num_tokens += m_block_size) {
        edge.tokens = tokens + match.num_tokens;
        const auto child = m_children.find(edge);
        if (child == m_children.end()) break;
        match.blocks.push_back(*child);
        edge.parent = *child;
    }
    // In their order, the child with the most common tokens is next to where these would be.
    edge.tokens = tokens + match.num_tokens;
    edge.count = std::min(count - match.num_tokens, m_block_size);
    const auto next = m_children.lower_bound(edge);
    const auto consider = [&](BlockId block) {
        const size_t common = common_tokens(block, edge);
        if (common > match.num_partial) match.partial = block, match.num_partial = common;
    };
    if (next != m_children.end()) consider(*next);
    if (next != m_children.begin()) consider(*std::prev(next));
    match.num_tokens += match.num_partial;
    match.num_in_blocks = match.num_tokens;
    if (m_states.size() > 0) end_at_checkpoint(root->second, tokens, match);
}

void PrefixTree::end_at_checkpoint(NodeId root, const int64_t* tokens, PrefixMatch& match) const {
    size_t num_blocks = match.blocks.size(), count = match.num_partial;
    Checkpoints::Found found;
    for (;; --num_blocks, count = m_block_size) {
        const NodeId parent = num_blocks > 0 ? match.blocks[num_blocks - 1] : root;
        found = m_checkpoints.find(parent, tokens + num_blocks * m_block_size, count);
        if (found.state != no_state || num_blocks == 0) break;
    }
    match.state = found.state;
    match.num_tokens = num_blocks * m_block_size + found.num_tokens;
    match.num_partial = found.num_tokens % m_block_size;
    if (found.num_tokens == m_block_size)
        ++num_blocks;
    else if (num_blocks < match.blocks.size())
        match.partial = match.blocks[num_blocks];
    match.blocks.resize(num_blocks);
}

bool PrefixTree::has_child(NodeId parent, const int64_t* tokens, size_t count) const {
    const Edge edge{parent, tokens, count};
    const auto next = m_children.lower_bound(edge);
    return next != m_children.end() && common_tokens(*next, edge) == count;
}

NodeId PrefixTree::root(const PrefixKey& key) {
    const auto [at, is_new] = m_root_ids.emplace(key, m_next_root);
    if (is_new) m_roots[m_next_root--].key = key;
    return at->second;
}

BlockId PrefixTree::insert(NodeId parent, const int64_t* tokens, size_t count, BlockId block) {
    const Edge edge{parent, tokens, count};
    const auto next = m_children.lower_bound(edge);
    if (next != m_children.end() && common_tokens(*next, edge) == count) return *next;
    Node& node = m_nodes[size_t(block)];
    if (contains(block)) {
        check_invariant(common_tokens(block, edge) == node.tokens.size(), "block ", block,
                        " was inserted twice, with other tokens");
        m_children.erase(block);
    } else {
        check_invariant(is_full(parent), "block ", block,
                        " was inserted below one that is not in the tree, or not full");
        m_pool.keep(block);
        node.parent = parent;
        node.num_idle_children = 0;
        if (parent < 0) ++m_roots.at(parent).num_children;
    }
    node.tokens.assign(tokens, tokens + count);
    const auto place = m_children.insert(block).first;
    if (place == m_children.begin()) return block;
    // Only the one before it can have become superfluous: of what was so earlier, all is held.
    const BlockId previous = *std::prev(place);
    if (is_idle(previous) && is_superfluous(previous)) remove_leaf(previous);
    return block;
}

bool PrefixTree::is_idle(NodeId node) const {
    return node >= 0 && m_pool.references(node) == 0;
}

bool PrefixTree::is_superfluous(BlockId block) const {
    const Node& node = m_nodes[size_t(block)];
    if (node.tokens.size() == m_block_size) return false;
    // Siblings that begin with its tokens follow it in their order.
    const auto next = std::next(m_children.find(block));
    return next != m_children.end() &&
           common_tokens(*next, {node.parent, node.tokens.data(), node.tokens.size()}) ==
               node.tokens.size();
}

bool PrefixTree::is_exposed(NodeId node) const {
    return is_idle(node) && m_nodes[size_t(node)].num_idle_children == 0;
}

void PrefixTree::expose(NodeId node) {
    if (is_exposed(node)) m_exposed.emplace(m_nodes[size_t(node)].last_use, node);
}

void PrefixTree::cover(NodeId node) {
    if (is_exposed(node)) m_exposed.erase({m_nodes[size_t(node)].last_use, node});
}

void PrefixTree::became_idle(BlockId block) {
    const NodeId parent = m_nodes[size_t(block)].parent;
    ++m_num_evictable;
    cover(parent);
    if (parent >= 0) ++m_nodes[size_t(parent)].num_idle_children;
    expose(block);
}

void PrefixTree::on_held(BlockId block) {
    const Node& node = m_nodes[size_t(block)];
    --m_num_evictable;
    m_exposed.erase({node.last_use, block});
    if (node.parent < 0) return;
    --m_nodes[size_t(node.parent)].num_idle_children;
    expose(node.parent);
}

void PrefixTree::on_released(BlockId block) {
    m_nodes[size_t(block)].last_use = ++m_clock;
    became_idle(block);
    if (is_superfluous(block)) remove_leaf(block);
}

void PrefixTree::touch(BlockId block) {
    if (!contains(block) || !is_idle(block)) return;
    cover(block);
    m_nodes[size_t(block)].last_use = ++m_clock;
    expose(block);
}

uint64_t PrefixTree::last_use(BlockId block) const {
    return is_idle(block) ? m_nodes[size_t(block)].last_use : m_clock + 1;
}

PrefixTree::Children::const_iterator PrefixTree::first_child(NodeId node) const {
    const auto child = m_children.lower_bound(Edge{node, nullptr, 0});
    return child != m_children.end() && m_nodes[size_t(*child)].parent == node ? child
                                                                               : m_children.end();
}

void PrefixTree::remove_leaf(BlockId block) {
    if (is_idle(block)) on_held(block);
    Node& node = m_nodes[size_t(block)];
    m_children.erase(block);
    drop_checkpoints(node.parent, node.tokens);
    node.tokens.clear();
    m_pool.drop(block);
    const auto root = m_roots.find(node.parent);
    if (root == m_roots.end() || --root->second.num_children > 0) return;
    m_root_ids.erase(root->second.key);
    m_roots.erase(root);
}

void PrefixTree::drop_checkpoints(NodeId parent, const std::vector<int64_t>& tokens) {
    for (size_t count = tokens.size(); count > 0;) {
        const Checkpoints::Found found = m_checkpoints.find(parent, tokens.data(), count);
        if (found.state == no_state) return;
        // The child that has these tokens has those of shorter checkpoints, too.
        if (has_child(parent, tokens.data(), found.num_tokens)) return;
        m_checkpoints.drop(found.state);
        count = found.num_tokens - 1;
    }
}

void PrefixTree::remove_subtree(BlockId block) {
    // Down to a leaf, which goes, and up again: no recursion, however deep the tree.
    for (BlockId at = block;;) {
        const auto child = first_child(at);
        if (child != m_children.end()) {
            at = *child;
            continue;
        }
        const NodeId parent = m_nodes[size_t(at)].parent;
        remove_leaf(at);
        if (at == block) return;
        at = parent;
    }
}

bool PrefixTree::evict() {
    if (m_exposed.empty()) return false;
    remove_subtree(m_exposed.begin()->second);
    return true;
}

void PrefixTree::clear(const std::optional<std::set<std::string>>& salts) {
    std::vector<NodeId> roots;  // each goes with its last child
    for (const auto& [id, root] : m_roots)
        if (!salts || salts->count(root.key.salt) != 0) roots.push_back(id);
    for (const NodeId root : roots)
        for (auto child = first_child(root); child != m_children.end(); child = first_child(root))
            remove_subtree(*child);
}

void PrefixTree::check_integrity() const {
    size_t num_evictable = 0;
    std::vector<uint32_t> num_idle_children(m_nodes.size(), 0);
    for (size_t i = 0; i < m_nodes.size(); ++i) {
        const bool is_in = !m_nodes[i].tokens.empty();
        check_invariant(is_in == m_pool.is_kept(BlockId(i)), "block ", i,
                        is_in ? " is in the tree, and not kept" : " is kept, and not in the tree");
        check_invariant(is_in == (m_children.count(BlockId(i)) != 0), "block ", i,
                        " is not among its parent's children");
        if (!is_in || !is_idle(BlockId(i))) continue;
        ++num_evictable;
        if (m_nodes[i].parent >= 0) ++num_idle_children[size_t(m_nodes[i].parent)];
    }
    check_invariant(num_evictable == m_num_evictable, num_evictable, " blocks can be evicted, and ",
                    m_num_evictable, " counted as such");
    for (BlockId block : m_children) {
        const Node& node = m_nodes[size_t(block)];
        check_invariant(contains(node.parent), "the parent of block ", block,
                        " is not in the tree");
        check_invariant(is_full(node.parent), "block ", block,
                        " lies below a block that is not full");
        check_invariant(node.num_idle_children == num_idle_children[size_t(block)],
                        "idle children of block ", block);
        check_invariant(is_exposed(block) == (m_exposed.count({node.last_use, block}) != 0),
                        "block ", block, " is to be evicted, and cannot be found, or the reverse");
        check_invariant(!is_idle(block) || !is_superfluous(block), "block ", block,
                        " is superfluous, and nobody holds it");
    }
    m_checkpoints.visit([&](NodeId parent, const std::vector<int64_t>& tokens, StateId state) {
        check_invariant(m_states.is_kept(state) && has_child(parent, tokens.data(), tokens.size()),
                        "the tree has no tokens for the checkpoint of state ", state);
    });
}

}  // namespace pagewheel
