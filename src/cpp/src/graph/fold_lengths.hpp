// Lengths of dimensions that are known, as constants.
#pragma once

#include "openvino/core/model.hpp"

namespace pagewheel {

/// Lengths that have nothing to do with tokens become constants, and what is computed of them: an
/// exporter writes heads and channels as what it read off another tensor. A Broadcast of rows to
/// the shape that they have goes. For a model after apply_paged_attention().
void fold_lengths(ov::Model& model);

}  // namespace pagewheel
