// Passes that replace single nodes by cheaper ones.
#pragma once

#include <cstddef>
#include <memory>

#include "openvino/core/model.hpp"

namespace pagewheel {

/// Lets all readers of equal constants of at most 16 f32, i32 or i64 values read the first of them;
/// returns how many became unused. Converters write axes, shapes and factors anew at each use: a
/// third of a decoder's nodes, and every pass that compiles the model visits all nodes many times.
size_t share_constants(const std::shared_ptr<ov::Model>& model);

/// A f32 MatMul that adds up one product each, [..., m, 1] by [..., 1, n], becomes a Multiply,
/// which gives the same: rotary angles are positions times frequencies, and OpenVINO's MatMul
/// takes 30 to 40 microseconds for them. Returns how many.
size_t multiply_outer_products(const std::shared_ptr<ov::Model>& model);

/// A Gather of rows by the model's logits_indices or sampled_tokens_indices, which operations of
/// pagewheel's read, becomes GatherRows, so that it does not part what a region could hold. Returns
/// how many.
size_t use_gather_rows(const std::shared_ptr<ov::Model>& model);

}  // namespace pagewheel
