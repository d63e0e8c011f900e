// Graphs of attention and nothing else, for tests and benchmarks of the operation.
#pragma once

#include <cstddef>
#include <memory>

#include "openvino/core/model.hpp"

namespace pagewheel {

struct AttentionShape {
    size_t heads = 9;
    size_t kv_heads = 3;
    size_t head_size = 64;
};

/// A stateful decoder of one attention layer and no weights, with the patterns that
/// SDPAToPagedAttention knows. Inputs inputs_embeds f32 [batch, tokens, (heads + 2 * kv_heads) *
/// head_size] (the query, the key and the value beside each other), attention_mask, position_ids,
/// beam_idx.
std::shared_ptr<ov::Model> stateful_attention(const AttentionShape& shape);

/// `layers` nodes of OpenVINO's PagedAttentionExtension, each with its own cache inputs
/// (key_cache.N, value_cache.N) and with the previous one's output as its query, between inputs
/// query, key and value [tokens, heads * head_size] of `type` and one result. The node is made by
/// SDPAToPagedAttention out of stateful_attention(): OpenVINO does not ship its header.
std::shared_ptr<ov::Model> openvino_paged_attention(const AttentionShape& shape, size_t layers,
                                                    const ov::element::Type& type);

}  // namespace pagewheel
