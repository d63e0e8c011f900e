// What the KV cache holds, and for whom, at one moment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pagewheel {

enum class BlockState : uint8_t {
    FREE,
    USED,    ///< held by one sequence
    SHARED,  ///< held by several, which begin alike
    CACHED,  ///< held by none, kept for a prefix that may come again
    PINNED,  ///< the same, and it stays
};

enum class SequenceStatus : uint8_t {
    WAITING,     ///< without blocks: to be admitted, or for another to compute what both begin with
    PREFILLING,  ///< its prompt is being computed
    DECODING,    ///< a token a step
    PREEMPTED,   ///< it had blocks and is to have some again
};

/// One sequence of a request.
struct SequenceView {
    std::optional<uint64_t> request_id;  ///< none: generate() made the request
    size_t index = 0;                    ///< within the request
    std::string cache_salt;              ///< of the request's GenerationConfig
    SequenceStatus state = SequenceStatus::WAITING;
    int priority = 0;
    size_t num_prompt_tokens = 0;
    size_t num_tokens = 0;        ///< of prompt and answer
    size_t num_computed = 0;      ///< of them; in the cache or evicted
    size_t num_evicted = 0;       ///< of the computed ones
    size_t num_prefix_hits = 0;   ///< of the prompt, found in the prefix cache
    std::vector<int32_t> blocks;  ///< in the order of its tokens; layers that evict reorder them
};

/// What eviction has left of one sequence, summed over ranges of tokens_per_bin tokens: value
/// layer * num_bins + bin is of the tokens [bin, bin + 1) * tokens_per_bin of the sequence.
struct KeptTokens {
    size_t sequence = 0;  ///< which of CacheView::sequences
    size_t num_layers = 0;
    size_t num_bins = 0;
    size_t tokens_per_bin = 0;
    std::vector<uint32_t> kept;    ///< [num_layers, num_bins] tokens that the layer still holds
    std::vector<int32_t> rotated;  ///< [num_layers, num_bins] positions by which their keys are
                                   ///< rotated, on average
};

/// A copy: it stays as it was made.
struct CacheView {
    size_t num_steps = 0;   ///< made until then
    size_t block_size = 0;  ///< tokens
    std::vector<BlockState> blocks;
    size_t num_sequences = 0;             ///< all there are
    std::vector<SequenceView> sequences;  ///< those with blocks first
    /// What is kept of the sequence that lost most tokens, or that was asked for.
    std::optional<KeptTokens> kept;
};

}  // namespace pagewheel
