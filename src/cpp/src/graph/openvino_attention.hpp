// OpenVINO's attention, of a model whose caches are evicted from.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "openvino/core/model.hpp"

namespace pagewheel {

/// Inputs of PagedAttentionExtension, whose header OpenVINO does not ship.
namespace openvino_input {
enum : size_t {
    query = 0,
    key = 1,
    value = 2,
    key_cache = 3,
    value_cache = 4,
    past_lens = 5,
    subsequence_begins = 6,
    block_indices = 7,
    block_indices_begins = 8,
    scale = 9,
    sliding_window = 10,
    alibi = 11,
    rotated = 14,
    xattention = 17,
    sinks = 20,
    token_types = 25,
    qq_bias = 26,
};
}  // namespace openvino_input

/// Its output of scores; the first is what it attends to.
inline constexpr size_t openvino_scores_output = 1;

/// Whether the node is attention over a paged cache, OpenVINO's or pagewheel's.
bool is_paged_attention(const ov::Node& node);

/// Whether the node is OpenVINO's and keeps a state for each sequence: a paged convolution or
/// recurrence.
bool openvino_keeps_state(const ov::Node& node);

/// Whether the node's keys and values go to its cache. Else it reads what another layer writes.
bool writes_kv_cache(ov::Node& attention);

/// The sliding window of a PagedAttentionExtension, 0 for none: by the model's config if `windows`
/// says, else by the node.
size_t sliding_window_of(const ov::Node& attention, size_t layer,
                         const std::vector<size_t>& windows);

/// A layer of a model after apply_paged_attention() with per_layer_tables and scores.
struct OpenVinoAttentionLayer {
    size_t layer = 0;           ///< its number among the model's layers
    size_t cache = 0;           ///< N of its inputs key_cache.N and value_cache.N
    bool owns_cache = true;     ///< else it reads the cache of another layer
    size_t sliding_window = 0;  ///< 0: none
    std::string block_indices;  ///< names of its input and
    std::string scores;         ///< of its output
};

/// In the order of the model's layers. `windows` are their sliding windows by the model's config, 0
/// for none; empty where it does not say. Throws InvalidArgument if a layer has no table or
/// no scores of its own.
std::vector<OpenVinoAttentionLayer> find_openvino_attention(const ov::Model& model,
                                                            const std::vector<size_t>& windows);

}  // namespace pagewheel
