// A tile of many rows, and its two matrix products in f32. For any V (simd/vectors.hpp).
#pragma once

#include "kernels/attention/prefill_unpack.hpp"
#include "kernels/attention/scratch.hpp"
#include "kernels/simd/unrolled.hpp"

namespace pagewheel::kernels {

constexpr size_t max_span = 256;  // keys; at least the largest block, so that a span holds one

/// The tile and where its data is. Its rows go through a span of keys in groups of `GroupRows`: six
/// have sums that fit vector registers.
template <class V, size_t GroupRows = 6>
struct PrefillTile {
    static constexpr size_t group_rows = GroupRows;

    PrefillTile(const AttentionConfig& c, size_t tile_rows)
        : config(c), layout(c.layout), rows(tile_rows) {
        groups = (rows + group_rows - 1) / group_rows;
        ratio = config.heads / layout.kv_heads;
    }

    PrefillTile(const AttentionConfig& c, const AttentionBatch& b, const AttentionTile& t)
        : PrefillTile(c, t.rows(c.heads / c.layout.kv_heads)) {
        batch = &b;
        tile = &t;
        first_position = static_cast<size_t>(b.tables.past_lens[t.sequence]) + t.token_begin -
                         static_cast<size_t>(b.tables.subsequence_begins[t.sequence]);
        visible_end = first_position + t.token_end - t.token_begin;
        first_entry = static_cast<size_t>(b.tables.block_indices_begins[t.sequence]);
    }

    const float* query(size_t row) const {
        const size_t head = tile->kv_head * ratio + row % ratio;
        return batch->query +
               ((tile->token_begin + row / ratio) * config.heads + head) * layout.key_size;
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
    size_t rows, groups, ratio;
    size_t first_position = 0;  // of the first row
    size_t visible_end = 0;     // one past the last row's position
    size_t first_entry = 0;     // of the sequence in block_indices
};

/// The two matrix products in f32, of blocks unpacked to f32 (or read in place, where they are).
template <class V, CacheFormat Format>
class FloatProducts {
    using Vec = typename V::F;
    static constexpr size_t L = V::lanes, R = PrefillTile<V>::group_rows;

public:
    using Tile = PrefillTile<V>;
    static constexpr size_t span_tokens = 128;
    static constexpr bool rounds_to_bf16 = false;

    FloatProducts(const PrefillTile<V>& tile, Scratch<V>& scratch, bool with_values = true)
        : tile_(tile), unpacker_(tile.layout) {
        const CacheLayout& layout = tile.layout;
        block_ = layout.block_size;
        key_size_ = layout.key_size;
        stride_ = padded(key_size_);
        width_ = padded(layout.value_size);
        values_in_place_ = Format == CacheFormat::f32 && layout.value_size == width_;
        queries_ = scratch.take(tile.groups * R * stride_);
        keys_ = scratch.take(max_span * key_size_);
        values_ = with_values ? scratch.take(max_span * width_) : nullptr;
        weights_ = with_values ? scratch.take(R * max_span) : nullptr;
    }

    /// [groups * group_rows, stride()], zeros past the head size and past the rows.
    const float* queries() const { return queries_; }
    size_t stride() const { return stride_; }

    void load_queries() {
        const Vec scale = V::set(tile_.config.scale * 1.44269504089f);
        for (size_t r = 0; r < tile_.groups * R; ++r) {
            float* to = queries_ + r * stride_;
            const float* from = r < tile_.rows ? tile_.query(r) : to;
            for (size_t d = 0; d < stride_; d += L) {
                const size_t left = r < tile_.rows && d < key_size_ ? key_size_ - d : 0;
                V::store(to + d, V::mul(V::load(from + d, V::mask(left)), scale));
            }
        }
    }

    void load_keys(size_t block, size_t end) {
        const float** lanes = key_lanes_;
        for (size_t b = block; b < end; ++b) {
            const auto* keys = reinterpret_cast<const float*>(tile_.keys_of(b));
            if (Format != CacheFormat::f32 || tile_.deltas_of(b)) keys = unpack_keys(b, b - block);
            for (size_t lane = 0; lane < block_; lane += L) *lanes++ = keys + lane;
        }
    }

    /// Keys [key_size][block_size] of a block, rotated; in the span's place `place`.
    const float* unpack_keys(size_t block, size_t place) {
        float* keys = keys_ + place * block_ * key_size_;
        unpacker_.keys(tile_.keys_of(block), keys);
        if (const int32_t* deltas = tile_.deltas_of(block))
            unpacker_.rotate(keys, tile_.config, tile_.batch->tables.rotation_trig_lut.values,
                             deltas, tile_.batch->tables.delta_width);
        return keys;
    }

    void load_values(size_t block, size_t end) {
        for (size_t b = block; b < end; ++b) {
            const auto* values = reinterpret_cast<const float*>(tile_.values_of(b));
            if (!values_in_place_) {
                float* own = values_ + (b - block) * block_ * width_;
                unpacker_.values(tile_.values_of(b), tile_.tokens_of(b), width_, own);
                values = own;
            }
            value_blocks_[b - block] = values;
        }
    }

    void load_span(size_t block, size_t end) {
        load_keys(block, end);
        load_values(block, end);
    }

    /// out [group_rows, max_span] of the span's keys [begin, end), whole vectors.
    void logits(size_t group, size_t begin, size_t end, float* out) const {
        const float* queries = queries_ + group * R * stride_;
        size_t v = begin / L;
        for (; (v + V::columns) * L <= end; v += V::columns) dot<V::columns>(queries, v, out);
        for (; v * L < end; ++v) dot<1>(queries, v, out);
    }

    static Vec exp2(Vec x) { return V::exp2(x); }

    /// Keeps the probabilities of a group's row `r`, vector by vector.
    class Row {
    public:
        Row(FloatProducts& products, size_t r) : to_(products.weights_ + r * max_span) {}
        Vec put(size_t column, Vec p) {
            V::store(to_ + column, p);
            return p;
        }
        void end() {}

    private:
        float* to_;
    };

    /// acc [rows, padded(value_size)] = acc * correction + factor * (what was put x values of the
    /// span's tokens [begin, end)), for the group's first `live` rows.
    void weigh(size_t begin, size_t end, const float* correction, const float* factor, float* acc,
               size_t live) const {
        size_t d = 0;
        for (; d + V::columns * L <= width_; d += V::columns * L)
            sum<V::columns>(begin, end, correction, factor, acc + d, d, live);
        for (; d < width_; d += L) sum<1>(begin, end, correction, factor, acc + d, d, live);
    }

private:
    template <size_t N>
    [[gnu::noinline]] void dot(const float* queries, size_t vector, float* out) const {
        const float* keys[N];
        unrolled<N>([&](auto n) PAGEWHEEL_INLINE { keys[n] = key_lanes_[vector + n]; });
        Vec acc[R][N];
        unrolled<R * N>([&](auto i) PAGEWHEEL_INLINE { acc[i / N][i % N] = V::zero(); });
        const size_t stride = stride_, block = block_;
        for (size_t d = 0, at = 0; d < key_size_; ++d, at += block) {
            Vec key[N];
            unrolled<N>([&](auto n) PAGEWHEEL_INLINE { key[n] = V::load(keys[n] + at); });
            unrolled<R>([&](auto r) PAGEWHEEL_INLINE {
                const Vec x = V::set(queries[r * stride + d]);
                unrolled<N>([&](auto n)
                                PAGEWHEEL_INLINE { acc[r][n] = V::fma(x, key[n], acc[r][n]); });
            });
        }
        unrolled<R * N>([&](auto i) PAGEWHEEL_INLINE {
            V::store(out + i / N * max_span + (vector + i % N) * L, acc[i / N][i % N]);
        });
    }

    template <size_t N>
    [[gnu::noinline]] void sum(size_t begin, size_t end, const float* correction,
                               const float* factor, float* out, size_t dimension,
                               size_t live) const {
        Vec acc[R][N];
        unrolled<R * N>([&](auto i) PAGEWHEEL_INLINE { acc[i / N][i % N] = V::zero(); });
        const size_t stride = values_in_place_ ? tile_.layout.value_size : width_;
        for (size_t t = begin; t < end;) {
            const size_t b = t / block_;
            const float* values = value_blocks_[b] + (t - b * block_) * stride + dimension;
            const size_t stop = (b + 1) * block_ < end ? (b + 1) * block_ : end;
            for (; t < stop; ++t, values += stride) {
                Vec value[N];
                unrolled<N>([&](auto n) PAGEWHEEL_INLINE { value[n] = V::load(values + n * L); });
                unrolled<R>([&](auto r) PAGEWHEEL_INLINE {
                    const Vec p = V::set(weights_[r * max_span + t]);
                    unrolled<N>([&](auto n) PAGEWHEEL_INLINE {
                        acc[r][n] = V::fma(p, value[n], acc[r][n]);
                    });
                });
            }
        }
        unrolled<R>([&](auto r) PAGEWHEEL_INLINE {
            if (r >= live) return;
            const Vec c = V::set(correction[r]), f = V::set(factor[r]);
            float* row = out + r * width_;
            unrolled<N>([&](auto n) PAGEWHEEL_INLINE {
                const Vec before = V::mul(c, V::load(row + n * L));
                V::store(row + n * L, V::fma(f, acc[r][n], before));
            });
        });
    }

    const PrefillTile<V>& tile_;
    BlockUnpacker<V, Format> unpacker_;
    size_t block_, key_size_, stride_, width_;
    bool values_in_place_;
    float *queries_, *keys_, *values_;
    float* weights_;                            // [group_rows, max_span]
    const float* key_lanes_[max_span / L];      // [key_size][block_size], of each vector of keys
    const float* value_blocks_[max_span / 16];  // [block_size][width_ or value_size]
};

}  // namespace pagewheel::kernels
