// What stands around pagewheel's linear layers goes into them: fewer nodes, and data that is
// worked on while it is in registers. For models after use_quantized_linear().
#pragma once

#include <cstddef>
#include <memory>

#include "openvino/core/model.hpp"

namespace pagewheel {

/// Root mean square norms that feed nothing but one QuantizedLinear become its own. Returns how
/// many.
size_t fuse_norms(const std::shared_ptr<ov::Model>& model);

/// QuantizedLinear of gate and up, silu(gate) * up, and QuantizedLinear of down become one
/// GatedMlp, with the norm of the first. Returns how many.
size_t fuse_gated_mlps(const std::shared_ptr<ov::Model>& model);

/// Where all of each head that a QuantizedLinear gives is rotated by rotary angles, halves paired,
/// the node does it itself. Returns how many nodes do.
size_t fuse_rotary(const std::shared_ptr<ov::Model>& model);

/// The sum of a residual stream and the only output of a QuantizedLinear or a GatedMlp becomes the
/// node's own. Returns how many.
size_t fuse_residuals(const std::shared_ptr<ov::Model>& model);

}  // namespace pagewheel
