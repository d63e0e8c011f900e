// How a layer's rows choose their experts, found in a graph.
#pragma once

#include <memory>
#include <optional>

#include "kernels/expert_router.hpp"
#include "openvino/core/node_output.hpp"

namespace pagewheel {

/// What a row chose, and what the outputs of that are multiplied with.
struct FoundRouting {
    ov::Output<ov::Node> chosen, weights;  // [rows, active]
    size_t active;
};

/// Of what all experts' outputs are multiplied with: 0 but for the chosen.
std::optional<FoundRouting> find_routing(const ov::Output<ov::Node>& weights);

/// A router and what it reads, f32 [..., k].
struct FoundRouter {
    std::shared_ptr<const kernels::ExpertRouter> router;  // null if it is none that is known
    ov::Output<ov::Node> input;
};

/// The router that makes that choice between experts. Throws InvalidArgument for one that may
/// choose experts that there are not.
FoundRouter find_router(const FoundRouting& routing, size_t experts);

}  // namespace pagewheel
