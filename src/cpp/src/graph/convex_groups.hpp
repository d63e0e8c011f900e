// Which nodes of a graph can become one without making it cyclic.
#pragma once

#include <cstddef>
#include <vector>

namespace pagewheel {

struct GraphEdge {
    size_t from, to;
};

/// Joins nodes into groups along `joins`, which are edges of the acyclic graph of nodes [0, count)
/// and `edges` too. If each group were one node, the graph would still be acyclic; so no path leads
/// out of a group and back in. No join that is left could be made as well. Returns a group's number
/// for each node: that of one of its nodes.
std::vector<size_t> find_convex_groups(size_t count, const std::vector<GraphEdge>& edges,
                                       const std::vector<GraphEdge>& joins);

}  // namespace pagewheel
