// Logits only for the rows that are sampled.
#pragma once

#include <memory>

#include "openvino/core/model.hpp"

namespace pagewheel {

/// Adds an input `logits_rows` (i64 [rows], ascending) and takes those of the batch's tokens before
/// the vocabulary projection: output `logits` becomes f32 [rows, vocabulary]. For an ov::Model
/// after apply_paged_attention(). Returns the Gather. Throws std::invalid_argument if there is no
/// output `logits` of rank 3.
std::shared_ptr<ov::Node> gather_logits(const std::shared_ptr<ov::Model>& model);

}  // namespace pagewheel
