// What paged_attention.cpp, which divides the work, and the kernels, which do it, say to each
// other. Internal to the kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/paged_attention.hpp"

namespace pagewheel::kernels {

/// Some new tokens of one sequence, the query heads of some kv heads, and a range of the sequence's
/// blocks. Of kv head kv_head + h, row r is token token_begin + r / ratio and head
/// (kv_head + h) * ratio + r % ratio.
struct AttentionTile {
    size_t sequence, kv_head;
    size_t token_begin, token_end;  // rows of batch.query
    size_t block_begin, block_end;  // of the sequence
    size_t kv_heads = 1;

    // Null, or what the same thread reads next: its first blocks are fetched while the last ones of
    // this tile are computed.
    const AttentionTile* next = nullptr;

    /// Of each kv head.
    size_t rows(size_t ratio) const { return (token_end - token_begin) * ratio; }
};

/// Softmax over the tile's keys, not yet divided: acc = sum p v and sum = sum p with
/// p = exp(logit - maximum). A row that sees none of the keys has sum 0.
struct TileResult {
    float* acc;      // [kv_heads, rows, padded(value_size)]
    float* maximum;  // [kv_heads, rows]
    float* sum;      // [kv_heads, rows]

    // Null, or where the probabilities stay, span after span, then [kv_heads, rows] of a float, the
    // maximum they are under, 15 floats that are unused and [padded(keys of the span)].
    float* kept = nullptr;
};

/// What turns logits into probabilities: p = exp(logit - maximum) * inverse_sum.
struct RowStatistics {
    float maximum, inverse_sum;
};

/// The kernels of one ISA for tiles of few rows, decode above all.
struct DecodeKernels {
    /// Floats of scratch that the other two need for tiles of that many rows of that many kv heads.
    size_t (*scratch_floats)(const AttentionConfig&, size_t rows, size_t kv_heads);
    void (*attend)(const AttentionConfig&, const AttentionBatch&, const AttentionTile&,
                   const TileResult&, float* scratch);
    /// scores[j - block_begin * block_size] += sum of the rows' probabilities of key j;
    /// statistics [kv_heads, rows].
    void (*score)(const AttentionConfig&, const AttentionBatch&, const AttentionTile&,
                  const RowStatistics* statistics, float* scores, float* scratch);
    /// scores[j] = sum of the rows' probabilities of key j of the tile's `keys`, as attend() kept
    /// them; statistics [kv_heads, rows].
    void (*sum_kept)(const AttentionConfig&, const AttentionTile&, size_t keys, const float* kept,
                     const RowStatistics* statistics, float* scores);
    /// Writes the keys and values of one new token (row of batch.key) to its place.
    void (*write)(const CacheLayout&, const AttentionBatch&, size_t sequence, size_t token);
};

/// The same for tiles of at least prefill_min_rows rows, the prefill chunks: a block's keys and
/// values are made ready once for all rows, where decode reads them as they lie for a few.
struct PrefillKernels {
    size_t (*scratch_floats)(const AttentionConfig&, size_t rows);
    void (*attend)(const AttentionConfig&, const AttentionBatch&, const AttentionTile&,
                   const TileResult&, float* scratch);
    /// Whether queries and probabilities over such a cache are rounded to bf16.
    bool (*rounds_to_bf16)(CacheFormat);
    /// Rows of a tile at most.
    size_t (*tile_rows)(CacheFormat);
};

/// What one ISA computes attention by.
struct AttentionKernels {
    DecodeKernels decode;  // with nothing but write(): a call is computed as it is defined
    PrefillKernels prefill;
    PrefillKernels prefill_bf16;  // may round to bf16: AttentionConfig::bf16_products

    bool has_tiles() const { return decode.attend != nullptr; }
    const PrefillKernels& prefill_for(const AttentionConfig& config) const {
        return config.bf16_products ? prefill_bf16 : prefill;
    }
    /// Whether prefill chunks of such a layer are computed in products of bf16 numbers.
    bool rounds_to_bf16(const AttentionConfig& config) const {
        return has_tiles() && prefill_for(config).rounds_to_bf16(config.layout.format);
    }
};

constexpr size_t prefill_min_rows = 24;
constexpr size_t prefill_tile_rows = 96;  // accumulators and queries stay in the L2 cache

/// paged_attention() by these kernels.
void paged_attention(const AttentionConfig& config, const AttentionBatch& batch,
                     const AttentionKernels& kernels);

void paged_attention_reference(const AttentionConfig& config, const AttentionBatch& batch);
void write_token_reference(const CacheLayout& layout, const AttentionBatch& batch, size_t sequence,
                           size_t token);

/// Rows in memory are padded to whole vectors of any ISA.
static constexpr size_t padded(size_t n) {
    return (n + 15) / 16 * 16;
}

/// Logits are computed, and softmax is updated, for about this many keys at once.
constexpr size_t span_tokens = 128;

/// The same in whole blocks, and in keys.
static constexpr size_t span_blocks(size_t block_size) {
    return span_tokens > block_size ? span_tokens / block_size : 1;
}

/// How the keys of one block are rotated: null, one delta or one per token.
static inline const int32_t* deltas_of_block(const BatchTables& tables, size_t block_index) {
    size_t low = 0, high = tables.rotated_block_indices.size;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (static_cast<size_t>(tables.rotated_block_indices[middle]) < block_index)
            low = middle + 1;
        else
            high = middle;
    }
    const bool found = low < tables.rotated_block_indices.size &&
                       static_cast<size_t>(tables.rotated_block_indices[low]) == block_index;
    return found ? tables.rotation_deltas.values + low * tables.delta_width : nullptr;
}

}  // namespace pagewheel::kernels
