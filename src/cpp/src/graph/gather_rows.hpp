// Rows that pagewheel's operations read are gathered by one of them.
#pragma once

#include <cstddef>
#include <memory>

#include "openvino/core/model.hpp"

namespace pagewheel {

/// A Gather of rows by the model's logits_indices or sampled_tokens_indices, which operations of
/// pagewheel's read, becomes GatherRows, so that it does not part what a region could hold. Returns
/// how many.
size_t use_gather_rows(const std::shared_ptr<ov::Model>& model);

}  // namespace pagewheel
