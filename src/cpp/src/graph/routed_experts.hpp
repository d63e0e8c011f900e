// pagewheel's own routed experts in place of OpenVINO's.
#pragma once

#include <cstddef>
#include <memory>

#include "kernels/activation_choice.hpp"
#include "openvino/core/model.hpp"

namespace pagewheel {

/// Replaces layers of routed experts by pagewheel::RoutedExperts, and returns how many. What is
/// known is the form that optimum-intel and pagewheel's converter write: each expert computes each
/// row, and the router's weights, 0 for those that were not chosen, are multiplied with that:
///
///     Tile(x) -> MatMul of stacks [experts, n, k] (graph/compressed_weights.hpp), with or without
///     biases -> Multiply by ScatterElementsUpdate(0, chosen, weights) -> ReduceSum
///
/// Gate and up may be one stack, their rows in halves or alternating. Of the activations SwiGLU,
/// the clamped one of gpt-oss and the GELU by the hyperbolic tangent are known. A router whose
/// scores are a softmax, a sigmoid with or without a correction, or the logits becomes part of the
/// node; others stay, and the node reads what they choose.
size_t use_routed_experts(const std::shared_ptr<ov::Model>& model,
                          kernels::ActivationPrecision activations);

}  // namespace pagewheel
