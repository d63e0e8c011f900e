// pagewheel's operations that hang together become one node, if no cycle comes of it.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "openvino/core/model.hpp"
#include "ops/native_region.hpp"

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

struct NativeRegions {
    std::vector<std::shared_ptr<const RegionPlan>> plans;
    /// Caches that are no inputs of the model any more, in the order of its cache_directory.
    std::vector<CacheInput> caches;
};

/// Puts a NativeRegion in the place of each set of two or more NativeOps that are connected by
/// rows and that one node can stand for without the graph becoming cyclic; sets are as large as
/// they can be. What only looks at rows in other shapes (Reshape, Squeeze, Unsqueeze, a Transpose
/// that moves nothing) between them goes too. An operation whose output has more than one dynamic
/// dimension stays as it is.
///
/// Cache inputs, u8 [blocks, ...], that nothing but regions reads are taken out of the model: one
/// input cache_directory has their addresses (see make_cache_directory).
///
/// After all other passes of pagewheel's, which do not look into regions.
NativeRegions form_native_regions(const std::shared_ptr<ov::Model>& model);

}  // namespace pagewheel
