// pagewheel's own attention in place of OpenVINO's.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cache_layer.hpp"
#include "openvino/core/model.hpp"

namespace pagewheel {

struct NativeAttentionOptions {
    kernels::CacheFormat format = kernels::CacheFormat::u8;
    size_t block_size = 32;
    /// Of each layer; the last serves all further ones. Empty: no layer is rotated.
    std::vector<LayerRotary> rotary;
    /// Leave the model as it is if some node cannot be served.
    bool all_or_none = false;
    /// Sliding window of each layer by the model's config, 0 for none; empty where it does not say.
    std::vector<size_t> sliding_windows;
    /// Of every layer's logits; 0 for none. OpenVINO's node has no such input.
    float soft_cap = 0;
    bool batch_invariant = false;  ///< kernels::AttentionConfig::batch_invariant
};

struct NativeAttentionReport {
    size_t num_replaced = 0;
    std::vector<CacheLayer> layers;  ///< in the order of their caches
    /// Why nodes were left to OpenVINO, one sentence each.
    std::vector<std::string> left;
};

/// Replaces each PagedAttentionExtension of a model after apply_paged_attention() by
/// pagewheel::PagedAttention over u8 cache inputs of the same names and one input batch_tables for
/// all layers (kernels::BatchTablesLayout), where the layer with key_cache.N is number N. A layer
/// that reads another's cache has that one's tables and gives no scores. A node it cannot serve
/// stays; inputs of OpenVINO's nodes that nothing reads any more go.
///
/// OpenVINO's pass finds sliding windows by matching masks and can miss them: where the config's
/// window differs from the node's, the config's is used.
NativeAttentionReport use_native_attention(const std::shared_ptr<ov::Model>& model,
                                           const NativeAttentionOptions& options);

}  // namespace pagewheel
