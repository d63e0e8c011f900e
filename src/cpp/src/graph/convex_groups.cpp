#include "graph/convex_groups.hpp"

#include <numeric>

namespace pagewheel {
namespace {

/// The graph of groups, in which edges are contracted one by one.
class Groups {
public:
    Groups(size_t count, const std::vector<GraphEdge>& edges)
        : m_parents(count), m_successors(count), m_seen(count, 0) {
        std::iota(m_parents.begin(), m_parents.end(), size_t(0));
        for (const GraphEdge& edge : edges) m_successors[edge.from].push_back(edge.to);
    }

    size_t of(size_t node) {
        while (m_parents[node] != node) node = m_parents[node] = m_parents[m_parents[node]];
        return node;
    }

    /// Contracts an edge, unless another path leads from its one end to the other: that would
    /// become a cycle. Returns whether it did.
    bool join(const GraphEdge& edge) {
        const size_t from = of(edge.from), to = of(edge.to);
        if (from == to || has_detour(from, to)) return false;
        m_parents[to] = from;
        auto& successors = m_successors[from];
        successors.insert(successors.end(), m_successors[to].begin(), m_successors[to].end());
        m_successors[to] = {};
        return true;
    }

private:
    /// Whether a path leads from group to group that is more than an edge.
    bool has_detour(size_t from, size_t to) {
        ++m_search;
        m_open.assign(1, from);
        while (!m_open.empty()) {
            const size_t group = m_open.back();
            m_open.pop_back();
            for (const size_t successor : m_successors[group]) {
                const size_t next = of(successor);
                if (next == to && group != from) return true;
                if (next == to || next == from || m_seen[next] == m_search) continue;
                m_seen[next] = m_search;
                m_open.push_back(next);
            }
        }
        return false;
    }

    std::vector<size_t> m_parents;  // towards the node that stands for the group
    std::vector<std::vector<size_t>> m_successors;
    std::vector<size_t> m_seen, m_open;
    size_t m_search = 0;
};

}  // namespace

std::vector<size_t> find_convex_groups(size_t count, const std::vector<GraphEdge>& edges,
                                       const std::vector<GraphEdge>& joins) {
    Groups groups(count, edges);
    // A detour may be taken into the group later, which makes way for the join.
    for (bool changed = true; changed;) {
        changed = false;
        for (const GraphEdge& edge : joins) changed |= groups.join(edge);
    }
    std::vector<size_t> numbers(count);
    for (size_t i = 0; i < count; ++i) numbers[i] = groups.of(i);
    return numbers;
}

}  // namespace pagewheel
