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

    /// Rows of each kv head.
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

/// The kernels of one ISA and cache format for tiles of few rows, decode above all.
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
    /// Writes the keys and values of a sequence's new tokens [first, last) (rows of batch.key) to
    /// their places.
    void (*write)(const CacheLayout&, const AttentionBatch&, size_t sequence, size_t first,
                  size_t last);
};

/// The kernels for tiles of at least prefill_min_rows rows, the prefill chunks: a block's keys and
/// values are made ready once for all rows, where decode reads them as they lie for a few.
struct PrefillKernels {
    size_t (*scratch_floats)(const AttentionConfig&, size_t rows);
    void (*attend)(const AttentionConfig&, const AttentionBatch&, const AttentionTile&,
                   const TileResult&, float* scratch);
    bool rounds_to_bf16;  // queries and probabilities
    size_t tile_rows;     // at most
};

/// What one ISA computes attention by, for each cache format. Without functions a call is computed
/// as it is defined.
struct AttentionKernels {
    DecodeKernels (*decode)(CacheFormat) = nullptr;
    PrefillKernels (*prefill)(CacheFormat) = nullptr;
    PrefillKernels (*prefill_bf16)(CacheFormat) = nullptr;  // see AttentionConfig::bf16_products

    bool has_tiles() const { return decode != nullptr; }
    PrefillKernels prefill_for(const AttentionConfig& config) const {
        return (config.bf16_products ? prefill_bf16 : prefill)(config.layout.format);
    }
    /// Whether prefill chunks of such a layer are computed in products of bf16 numbers.
    bool rounds_to_bf16(const AttentionConfig& config) const {
        return has_tiles() && prefill_for(config).rounds_to_bf16;
    }
};

constexpr size_t prefill_min_rows = 24;
constexpr size_t prefill_tile_rows = 96;  // accumulators and queries stay in the L2 cache

/// paged_attention() by these kernels.
void paged_attention(const AttentionConfig& config, const AttentionBatch& batch,
                     const AttentionKernels& kernels);

void paged_attention_reference(const AttentionConfig& config, const AttentionBatch& batch);
void write_tokens_reference(const CacheLayout& layout, const AttentionBatch& batch, size_t sequence,
                            size_t first, size_t last);

/// Rows in memory are padded to whole vectors of any ISA.
static constexpr size_t padded(size_t n) {
    return (n + 15) / 16 * 16;
}

/// Logits are computed, and softmax is updated, for about this many keys at once.
constexpr size_t span_tokens = 128;

/// The blocks of a span, of which span_tokens is about the number of keys.
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

/// A tile and where its data is. Without batch and tile kernels count their scratch memory with it.
/// V says whose object file its functions are in (simd/vectors.hpp).
template <class V>
struct TileView {
    TileView(const AttentionConfig& c, size_t tile_rows, size_t tile_kv_heads = 1)
        : config(c),
          layout(c.layout),
          rows(tile_rows),
          kv_heads(tile_kv_heads),
          ratio(c.heads / c.layout.kv_heads) {}

    TileView(const AttentionConfig& c, const AttentionBatch& b, const AttentionTile& t)
        : TileView(c, t.rows(c.heads / c.layout.kv_heads), t.kv_heads) {
        batch = &b;
        tile = &t;
        first_position = static_cast<size_t>(b.tables.past_lens[t.sequence]) + t.token_begin -
                         static_cast<size_t>(b.tables.subsequence_begins[t.sequence]);
        visible_end = first_position + t.token_end - t.token_begin;
        first_entry = static_cast<size_t>(b.tables.block_indices_begins[t.sequence]);
    }

    /// The query head of a row of the tile's kv head `h`.
    size_t head_of(size_t row, size_t h = 0) const {
        return (tile->kv_head + h) * ratio + row % ratio;
    }
    const float* query(size_t row, size_t h = 0) const {
        return batch->query + ((tile->token_begin + row / ratio) * config.heads + head_of(row, h)) *
                                  layout.key_size;
    }
    /// Rows past the tile's, which fill its last group, stand where the last row does.
    size_t position(size_t row) const {
        return first_position + (row < rows ? row : rows - 1) / ratio;
    }

    /// The first key at or after first_key that the row's sliding window holds.
    size_t window_begin(size_t row, size_t first_key) const {
        const size_t next = position(row) + 1, window = config.sliding_window;
        return window && next > window + first_key ? next - window : first_key;
    }

    size_t block_id(size_t block) const {
        return static_cast<size_t>(batch->tables.block_indices[first_entry + block]);
    }
    const uint8_t* keys_of(size_t block) const {
        return batch->key_blocks +
               (block_id(block) * layout.kv_heads + tile->kv_head) * layout.key_head_bytes();
    }
    const uint8_t* values_of(size_t block) const {
        return batch->value_blocks +
               (block_id(block) * layout.kv_heads + tile->kv_head) * layout.value_head_bytes();
    }
    const int32_t* deltas_of(size_t block) const {
        return batch->tables.rotated_block_indices.size
                   ? deltas_of_block(batch->tables, first_entry + block)
                   : nullptr;
    }
    /// Tokens of the block that some row sees.
    size_t tokens_of(size_t block) const {
        const size_t left = visible_end - block * layout.block_size;
        return left < layout.block_size ? left : layout.block_size;
    }

    const AttentionConfig& config;
    const CacheLayout& layout;
    const AttentionBatch* batch = nullptr;
    const AttentionTile* tile = nullptr;
    size_t rows, kv_heads, ratio;  // rows of each kv head
    size_t first_position = 0;     // of the first row
    size_t visible_end = 0;        // one past the last row's position
    size_t first_entry = 0;        // of the sequence in block_indices
};

/// Hands out pieces of one thread's memory; with a null base it only counts. V says whose object
/// file its functions are in (simd/vectors.hpp).
template <class V>
class Scratch {
public:
    explicit Scratch(float* base) : base_(base) {}

    template <class E = float>
    E* take(size_t count) {
        E* p = base_ ? reinterpret_cast<E*>(base_ + used_) : nullptr;
        used_ += padded((count * sizeof(E) + 3) / 4);
        return p;
    }
    size_t used() const { return used_; }

private:
    float* base_;
    size_t used_ = 0;
};

}  // namespace pagewheel::kernels
