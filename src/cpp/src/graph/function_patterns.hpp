// Functions of activations that exporters write as several nodes.
#pragma once

#include <cstddef>
#include <optional>

#include "openvino/core/node.hpp"
#include "ops/quantized_linear.hpp"

namespace pagewheel {

struct FoundNorm {
    ov::Output<ov::Node> x;
    RmsNorm norm;
};

/// The norm of rows of k that `output` is: gamma * (x * 1 / sqrt(...)), factors in either order.
std::optional<FoundNorm> find_norm(const ov::Output<ov::Node>& output, size_t k);

/// x, if `output` is x * sigmoid(x); else null.
ov::Output<ov::Node> silu_input(const ov::Output<ov::Node>& output);

}  // namespace pagewheel
