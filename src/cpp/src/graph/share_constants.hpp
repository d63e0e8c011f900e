// One node for equal small constants.
#pragma once

#include <cstddef>
#include <memory>

#include "openvino/core/model.hpp"

namespace pagewheel {

/// Lets all readers of equal constants of at most 16 f32, i32 or i64 values read the first of them;
/// returns how many became unused. Converters write axes, shapes and factors anew at each use: a
/// third of a decoder's nodes, and every pass that compiles the model visits all nodes many times.
size_t share_constants(const std::shared_ptr<ov::Model>& model);

}  // namespace pagewheel
