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

/// The router that gives that of x [..., k]; null if it is none that is known.
std::shared_ptr<const kernels::ExpertRouter> find_router(const FoundRouting& routing,
                                                         const ov::Output<ov::Node>& x,
                                                         size_t experts, size_t k);

}  // namespace pagewheel
