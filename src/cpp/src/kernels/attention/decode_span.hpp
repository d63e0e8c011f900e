// The blocks that a tile kernel is at, and those it fetches meanwhile. For any V
// (simd/vectors.hpp).
#pragma once

#include "kernels/attention/decode_float.hpp"

namespace pagewheel::kernels {

struct SpanBlock {
    const uint8_t *keys, *values;        // of the tile's first kv head
    ptrdiff_t keys_ahead, values_ahead;  // bytes to the block that is fetched meanwhile
    const int32_t* deltas;               // null, one or one per token
};

/// Up to span_blocks() blocks of a tile.
template <class V, CacheFormat Format>
class TileSpan {
    static constexpr size_t per_word = FormatTraits<Format>::tokens_per_word;
    static constexpr size_t max_keys = 256;  // a span of several blocks has span_tokens at most

public:
    explicit TileSpan(const AttentionConfig& config) : layout_(config.layout) {
        block_size_ = layout_.block_size;
        key_bytes_ = layout_.key_head_bytes();
        value_bytes_ = layout_.value_head_bytes();
        row_words_ = layout_.value_row_words();
    }

    void read(const AttentionBatch& batch, const AttentionTile& tile) {
        batch_ = &batch;
        tile_ = &tile;
        const size_t s = tile.sequence;
        visible_end_ = static_cast<size_t>(batch.tables.past_lens[s]) + tile.token_end -
                       static_cast<size_t>(batch.tables.subsequence_begins[s]);
    }

    size_t blocks = 0;
    size_t first_key = 0, keys = 0;  // of the sequence, that some row of the tile sees
    SpanBlock block[span_tokens / 16];
    const uint32_t* value_rows[max_keys / per_word];  // see ValueRows
    ptrdiff_t value_ahead[max_keys / per_word];

    /// Keys of block i of the span.
    size_t tokens(size_t i) const {
        const size_t left = keys - i * block_size_;
        return left < block_size_ ? left : block_size_;
    }

    /// Moves to the blocks from `first` on.
    void enter(size_t first) {
        blocks = tile_->block_end - first;
        if (blocks > span_blocks(block_size_)) blocks = span_blocks(block_size_);
        first_key = first * block_size_;
        keys = blocks * block_size_;
        if (visible_end_ - first_key < keys) keys = visible_end_ - first_key;
        for (size_t i = 0; i < blocks; ++i) {
            enter_block(first + i, i);
            const auto* words = reinterpret_cast<const uint32_t*>(block[i].values);
            const size_t row = i * block_size_ / per_word;
            for (size_t j = 0; j * per_word < tokens(i); ++j) {
                value_rows[row + j] = words + j * row_words_;
                value_ahead[row + j] = block[i].values_ahead;
            }
        }
    }

private:
    /// A tile's keys and values in block b of its sequence begin at this head of the pool.
    size_t first_head(const AttentionTile& tile, size_t b) const {
        const auto entry =
            static_cast<size_t>(batch_->tables.block_indices_begins[tile.sequence]) + b;
        return static_cast<size_t>(batch_->tables.block_indices[entry]) * layout_.kv_heads +
               tile.kv_head;
    }

    /// The same of what is read a span after block b, block i of this span; `own` if nothing is.
    size_t head_ahead(size_t b, size_t i, size_t own) const {
        const size_t later = b + span_blocks(block_size_);
        if (later < tile_->block_end) return first_head(*tile_, later);
        const AttentionTile* next = tile_->next;
        if (!next || next->block_begin + i >= next->block_end) return own;
        return first_head(*next, next->block_begin + i);
    }

    void enter_block(size_t b, size_t i) {
        const size_t head = first_head(*tile_, b), ahead = head_ahead(b, i, head);
        const size_t entry =
            static_cast<size_t>(batch_->tables.block_indices_begins[tile_->sequence]) + b;
        block[i] = {
            batch_->key_blocks + head * key_bytes_, batch_->value_blocks + head * value_bytes_,
            static_cast<ptrdiff_t>((ahead - head) * key_bytes_),
            static_cast<ptrdiff_t>((ahead - head) * value_bytes_),
            batch_->tables.rotated_block_indices.size > 0 ? deltas_of_block(batch_->tables, entry)
                                                          : nullptr};
    }

    const CacheLayout& layout_;
    const AttentionBatch* batch_ = nullptr;
    const AttentionTile* tile_ = nullptr;
    size_t block_size_, key_bytes_, value_bytes_, row_words_;
    size_t visible_end_ = 0;  // one past the last row's position
};

}  // namespace pagewheel::kernels
