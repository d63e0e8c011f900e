// Logits of the span that a tile of few rows is at. For any V (simd/vectors.hpp).
#pragma once

#include "kernels/attention/decode_float.hpp"
#include "kernels/attention/decode_queries.hpp"
#include "kernels/attention/decode_rotated_keys.hpp"
#include "kernels/attention/decode_span.hpp"
#include "kernels/simd/soft_cap.hpp"

namespace pagewheel::kernels {

/// Queries times keys, as the keys' deltas want it: the queries as they are, rotated for a block or
/// for a run of tokens, or the keys rotated. `A` is the arithmetic.
template <class V, CacheFormat Format, class A>
class SpanLogits {
    using T = FormatTraits<Format>;
    using Vec = typename V::F;
    static constexpr size_t L = V::lanes;

public:
    /// Of `rows` rows of each kv head; those of logits are `width` floats apart.
    SpanLogits(const AttentionConfig& config, const TileSpan<V, Format>& span, size_t rows,
               size_t kv_heads, size_t width, Scratch<V>& scratch)
        : config_(config),
          span_(span),
          rows_(rows),
          width_(width),
          block_(config.layout.block_size),
          key_bytes_(config.layout.key_head_bytes()),
          key_words_(config.layout.key_words()),
          key_groups_(config.layout.key_groups()),
          queries_(config, rows, kv_heads, scratch),
          rotated_keys_(config, scratch) {}

    void read(const AttentionBatch& batch, const AttentionTile& tile) {
        batch_ = &batch;
        queries_.load(batch, tile);
        rotated_keys_.read(batch);
    }

    /// Makes the blocks that the span has entered ready.
    void enter_span() {
        for (size_t i = 0; i < span_.blocks; ++i) {
            const int32_t* deltas = span_.block[i].deltas;
            by_keys_[i] =
                deltas && batch_->tables.delta_width > 1 && rotates_keys(deltas, span_.tokens(i));
            if (by_keys_[i]) rotated_keys_.load(i, deltas, span_.tokens(i));
        }
    }

    /// logits [rows][width] of the tile's kv head `head`, in powers of two.
    void compute(size_t head, float* logits) {
        logits_ = logits;
        for (size_t i = 0; i < span_.blocks; ++i) {
            const int32_t* deltas = span_.block[i].deltas;
            const size_t tokens = span_.tokens(i);
            if (!deltas) {
                block_logits(queries_.plain(head), head, i, 0, tokens);
            } else if (batch_->tables.delta_width == 1) {
                block_logits(queries_.rotated(head, *deltas), head, i, 0, tokens);
            } else if (by_keys_[i]) {
                rotated_keys_logits(head, i, tokens);
            } else {
                for (size_t begin = 0, end; begin < tokens; begin = end) {
                    for (end = begin + 1; end < tokens && deltas[end] == deltas[begin]; ++end) {
                    }
                    block_logits(queries_.rotated(head, deltas[begin]), head, i, begin, end);
                }
            }
        }
        if (config_.soft_cap > 0)
            simd::soft_cap<V>(logits, rows_, width_, 0, span_.keys, config_.soft_cap);
    }

private:
    /// Whether a block's deltas differ so often that rotating its keys costs less than rotating the
    /// queries for each run of equal ones.
    static bool rotates_keys(const int32_t* deltas, size_t tokens) {
        size_t runs = 1;
        for (size_t t = 1; t < tokens; ++t) runs += deltas[t] != deltas[t - 1];
        return runs > 1 && runs * 6 > tokens;
    }

    /// Of tokens [begin, end) of block i of the span.
    void block_logits(const PreparedQueries& q, size_t head, size_t i, size_t begin, size_t end) {
        size_t lane = begin / L * L;
        for (; lane + L < end; lane += 2 * L)
            simd::for_rows<V>(rows_, [&](auto R, size_t row) {
                row_logits<R, 2>(q, head, i, row, lane, begin, end);
            });
        if (lane < end)
            simd::for_rows<V>(rows_, [&](auto R, size_t row) {
                row_logits<R, 1>(q, head, i, row, lane, begin, end);
            });
    }

    KeyLanes key_lanes(size_t head, size_t i, size_t lane) const {
        KeyLanes keys;
        keys.words =
            reinterpret_cast<const uint32_t*>(span_.block[i].keys + head * key_bytes_) + lane;
        keys.key_words = key_words_;
        keys.block_size = block_;
        keys.groups = key_groups_;
        keys.scales = keys.words + keys.key_words * block_;
        keys.ahead = span_.block[i].keys_ahead;
        return keys;
    }

    template <size_t R, size_t N>
    [[gnu::noinline]] void row_logits(const PreparedQueries& q, size_t head, size_t i, size_t row,
                                      size_t lane, size_t begin, size_t end) {
        const KeyLanes keys = key_lanes(head, i, lane);
        Vec x[R][N];
        A::template logits<R, N>(keys, q, row, x);
        unrolled<N>([&](auto n) PAGEWHEEL_INLINE {
            const size_t at = lane + n * L;
            const auto mask = V::mask(begin > at ? begin - at : 0, end - at);
            unrolled<R>([&](auto r) PAGEWHEEL_INLINE {
                V::store(logits_ + (row + r) * width_ + i * block_ + at, x[r][n], mask);
            });
        });
    }

    /// Of a block whose tokens are all rotated differently: by keys rotated down, L at a time.
    void rotated_keys_logits(size_t head, size_t i, size_t tokens) {
        const PreparedQueries q = queries_.plain(head);
        for (size_t lane = 0; lane < tokens; lane += L) {
            const KeyLanes rotated = rotated_keys_.rotate(key_lanes(head, i, lane), i, lane);
            simd::for_rows<V>(rows_, [&](auto R, size_t row) {
                Vec x[R][1];
                FloatArithmetic<V, CacheFormat::f32>::template logits<R, 1>(rotated, q, row, x);
                unrolled<R>([&](auto r) PAGEWHEEL_INLINE {
                    V::store(logits_ + (row + r) * width_ + i * block_ + lane,
                             V::mul(x[r][0], V::set(q.unit[row + r])));
                });
            });
        }
    }

    const AttentionConfig& config_;
    const TileSpan<V, Format>& span_;
    const AttentionBatch* batch_ = nullptr;
    size_t rows_, width_, block_;
    size_t key_bytes_, key_words_, key_groups_;  // of one head in a block
    bool by_keys_[span_tokens / 16];             // of the span's blocks, see rotates_keys()
    TileQueries<V, A> queries_;
    RotatedKeys<V, Format> rotated_keys_;
    float* logits_ = nullptr;  // where compute() puts them
};

}  // namespace pagewheel::kernels
