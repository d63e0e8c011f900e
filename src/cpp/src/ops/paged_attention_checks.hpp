// What PagedAttention's inputs must satisfy before a kernel may follow their indices.
#pragma once

#include "openvino/runtime/tensor.hpp"
#include "ops/paged_attention.hpp"

namespace pagewheel {

/// `inputs` are those of PagedAttention. Throws std::invalid_argument that names the input, what it
/// says and what is allowed. After it, no index leads out of a tensor: shapes fit the attributes,
/// every sequence has at least one new token and enough blocks for its context, block ids are in
/// the pool, begins ascend, rotation entries ascend and their deltas are rows of the table.
void check_paged_attention(const PagedAttention::Attributes& attributes,
                           const ov::TensorVector& inputs);

/// Any sequence asks for scores.
bool wants_scores(const ov::Tensor& score_windows);

}  // namespace pagewheel
