// pagewheel's own attention in place of the plugin's.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cache_layout.hpp"
#include "openvino/core/model.hpp"

namespace pagewheel {

struct NativeAttentionOptions {
    kernels::CacheFormat format = kernels::CacheFormat::u8;
    size_t block_size = 32;
    size_t rotary_dims = 0;  ///< 0: the model's rotation is not known, and none can be asked for
    bool interleaved = false;
    /// Sliding window of each layer by the model's config, 0 for none; empty where it does not say.
    std::vector<size_t> sliding_windows;
};

struct NativeAttentionReport {
    size_t num_replaced = 0;
    /// Why nodes were left to the plugin, one sentence each.
    std::vector<std::string> left;
};

/// Replaces each PagedAttentionExtension of a model after apply_paged_attention() by
/// pagewheel::PagedAttention over u8 cache inputs of the same names, and adds that op's inputs:
/// score_aggregation_window, scores.N, rotated_block_indices, rotation_deltas and
/// rotation_trig_lut. A node it cannot serve stays.
///
/// The stock pass finds sliding windows by matching masks and can miss them: where the config's
/// window differs from the node's, the config's is used.
NativeAttentionReport use_native_attention(const std::shared_ptr<ov::Model>& model,
                                           const NativeAttentionOptions& options);

}  // namespace pagewheel
