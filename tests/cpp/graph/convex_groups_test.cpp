// Which nodes become one: on small graphs by hand, on random ones by the definition.
#include "graph/passes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace pagewheel {
namespace {

/// Whether a path leads from group to group in the graph of groups that does not begin with the
/// edge between them.
bool has_detour(const std::vector<size_t>& groups, const std::vector<GraphEdge>& edges, size_t from,
                size_t to) {
    std::set<size_t> reached;
    std::vector<size_t> open{from};
    while (!open.empty()) {
        const size_t group = open.back();
        open.pop_back();
        for (const GraphEdge& edge : edges) {
            const size_t next = groups[edge.to];
            if (groups[edge.from] != group || next == group) continue;
            if (group == from && next == to) continue;
            if (next == to) return true;
            if (reached.insert(next).second) open.push_back(next);
        }
    }
    return false;
}

/// That nodes 0 to n - 1, all joined by `edges`, end up together.
void expect_one_group(size_t n, const std::vector<GraphEdge>& edges) {
    const auto groups = find_convex_groups(n, edges, edges);
    EXPECT_EQ(groups, std::vector<size_t>(n, groups[0]));
}

TEST(ConvexGroups, AChainIsOneGroup) {
    expect_one_group(4, {{0, 1}, {1, 2}, {2, 3}});
}

TEST(ConvexGroups, APathOutAndBackInKeepsItsEndsApart) {
    // 0 -> 1 -> 3 and 0 -> 2 -> 3, where 2 is a stranger.
    const auto groups = find_convex_groups(4, {{0, 1}, {1, 3}, {0, 2}, {2, 3}}, {{0, 1}, {1, 3}});
    EXPECT_EQ(groups[0], groups[1]);
    EXPECT_NE(groups[1], groups[3]);
    EXPECT_NE(groups[2], groups[3]);
}

TEST(ConvexGroups, ADetourInsideTheGroupIsNone) {
    // The join 0 -> 2 comes first and can only be made after 1 has joined.
    expect_one_group(3, {{0, 2}, {0, 1}, {1, 2}});
}

TEST(ConvexGroups, GroupsThatNeedEachOtherStayApart) {
    // Each of {0, 2} and {1, 3} would be convex by itself; both together are a cycle.
    const auto groups = find_convex_groups(4, {{0, 2}, {1, 3}, {0, 3}, {1, 2}}, {{0, 2}, {1, 3}});
    EXPECT_EQ((groups[0] == groups[2]) + (groups[1] == groups[3]), 1);
}

TEST(ConvexGroups, OnRandomGraphsTheGroupsAreAcyclicConnectedAndMaximal) {
    std::mt19937 random(1);
    const auto chance = [&](double p) { return std::bernoulli_distribution(p)(random); };
    for (int round = 0; round < 300; ++round) {
        const size_t count = 2 + random() % 12;
        const double density = 0.1 + 0.5 * double(random() % 100) / 100;
        std::vector<GraphEdge> edges, joins;
        for (size_t to = 1; to < count; ++to)
            for (size_t from = 0; from < to; ++from) {
                if (!chance(density)) continue;
                edges.push_back({from, to});
                if (chance(0.6)) joins.push_back({from, to});
            }
        const auto groups = find_convex_groups(count, edges, joins);
        for (const GraphEdge& edge : edges) {
            // No path leads back from group to group.
            if (groups[edge.from] != groups[edge.to]) {
                EXPECT_FALSE(has_detour(groups, edges, groups[edge.to], groups[edge.from]));
            }
        }
        for (const GraphEdge& join : joins) {
            const size_t from = groups[join.from], to = groups[join.to];
            if (from != to) {
                EXPECT_TRUE(has_detour(groups, edges, from, to)) << "round " << round;
            }
        }
        // What is in a group is connected by joins.
        std::vector<size_t> parts(count);
        for (size_t i = 0; i < count; ++i) parts[i] = i;
        for (size_t i = 0; i < count; ++i)
            for (const GraphEdge& join : joins)
                if (groups[join.from] == groups[join.to])
                    parts[join.from] = parts[join.to] = std::min(parts[join.from], parts[join.to]);
        std::set<std::pair<size_t, size_t>> connected;
        std::set<size_t> distinct;
        for (size_t i = 0; i < count; ++i) {
            connected.emplace(groups[i], parts[i]);
            distinct.insert(groups[i]);
        }
        EXPECT_EQ(connected.size(), distinct.size()) << "round " << round;
    }
}

}  // namespace
}  // namespace pagewheel
