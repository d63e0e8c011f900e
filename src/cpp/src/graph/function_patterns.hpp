// What exporters write as several nodes: functions of activations, and parts of their rows.
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

/// Columns of rows f32, from the first one on.
struct FoundColumns {
    ov::Output<ov::Node> rows;
    size_t first = 0;
};

/// The rows that `width` columns of each token are cut out of by a split or a slice, or that they
/// are; nothing for other values than f32, and rows of unknown width.
std::optional<FoundColumns> find_columns(const ov::Output<ov::Node>& output, size_t width);

}  // namespace pagewheel
