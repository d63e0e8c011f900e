// Logits only for the rows that are sampled.
#pragma once

#include <memory>

#include "openvino/core/model.hpp"

namespace pagewheel {

/// Adds an input `sampled_tokens_indices` (i64 [rows], ascending; ports::sampled_tokens_indices)
/// and takes these rows before the vocabulary projection: output `logits` becomes f32 [rows,
/// vocabulary]. For an ov::Model after apply_paged_attention(). Throws InvalidArgument if there is
/// no output `logits` of rank 3.
void gather_logits(const std::shared_ptr<ov::Model>& model);

}  // namespace pagewheel
