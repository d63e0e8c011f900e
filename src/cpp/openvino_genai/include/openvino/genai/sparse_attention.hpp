// Sparse attention, which pagewheel does not have yet: its config is kept.
#pragma once

#include <cstddef>

#include "openvino/genai/visibility.hpp"

namespace pagewheel::openvino_genai {

enum class SparseAttentionMode { TRISHAPE, XATTENTION };

struct SparseAttentionConfig {
    SparseAttentionMode mode = SparseAttentionMode::TRISHAPE;
    size_t num_last_dense_tokens_in_prefill = 100;
    size_t num_retained_start_tokens_in_cache = 128;
    size_t num_retained_recent_tokens_in_cache = 1920;
    float xattention_threshold = 0.8f;
    size_t xattention_block_size = 64;
    size_t xattention_stride = 8;
};

}  // namespace pagewheel::openvino_genai
