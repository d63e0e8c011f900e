// Logits of the span that a tile of few rows is at: its queries, as they are and rotated, and keys
// rotated token by token. For any V (simd/vectors.hpp).
#pragma once

#include "kernels/attention/decode_float.hpp"
#include "kernels/attention/tile.hpp"
#include "kernels/simd/math.hpp"

namespace pagewheel::kernels {

/// Logits are in powers of two inside the kernels.
constexpr float log2_e = 1.44269504089f, ln_2 = 0.69314718056f;

/// Queries of the tile's kv heads, `rows` each. `A` is the arithmetic they are prepared for.
template <class V, class A>
class TileQueries {
    using Vec = typename V::F;
    static constexpr size_t L = V::lanes;

public:
    TileQueries(const TileView<V>& view, Scratch<V>& scratch)
        : view_(view),
          config_(view.config),
          rows_(view.rows),
          stride_((view.layout.key_size + 63) / 64 * 64),
          plain_(take(scratch)),
          rotated_(take(scratch)),
          rotated_by_(scratch.template take<int32_t>(view.kv_heads)) {}

    void load() {
        for (size_t h = 0; h < view_.kv_heads; ++h) {
            load_head(h);
            A::prepare_queries(plain(h), rows_);
            rotated_by_[h] = -1;
        }
    }

    /// The queries of kv head `head` of the tile.
    PreparedQueries plain(size_t head) const { return of_head(plain_, head); }

    /// Those queries rotated up by row `delta` of the LUT; good until the head's next delta.
    PreparedQueries rotated(size_t head, int32_t delta) {
        const PreparedQueries from = plain(head), to = of_head(rotated_, head);
        if (rotated_by_[head] == delta) return to;
        rotated_by_[head] = delta;
        const float* row = view_.batch->tables.rotation_trig_lut.values +
                           static_cast<size_t>(delta) * config_.rotary_dims;
        if (config_.interleaved)
            rotate_pairs(from.floats, row, to.floats);
        else
            rotate_halves(from.floats, row, to.floats);
        A::prepare_queries(to, rows_);
        return to;
    }

private:
    PreparedQueries take(Scratch<V>& scratch) const {
        const size_t floats = view_.kv_heads * rows_ * stride_;
        return {stride_,
                scratch.take(floats),
                scratch.take(floats / 16),
                scratch.take(view_.kv_heads * rows_),
                scratch.template take<int8_t>(floats),
                scratch.template take<int8_t>(floats)};
    }

    PreparedQueries of_head(PreparedQueries q, size_t head) const {
        const size_t at = head * rows_ * stride_;
        return {q.stride,    q.floats + at, q.sums + at / 16, q.unit + head * rows_,
                q.high + at, q.low + at};
    }

    void load_head(size_t h) {
        const PreparedQueries q = plain(h);
        const size_t size = config_.layout.key_size;
        // Rotation lengthens no pair, so no element grows by more than the square root of 2.
        const float growth = view_.batch->tables.rotated_block_indices.size > 0 ? 1.41422f : 1.0f;
        const float scale = config_.scale * log2_e, size_of_scale = scale < 0 ? -scale : scale;
        const PreparedQueries to_be_rotated = of_head(rotated_, h);
        for (size_t r = 0; r < rows_; ++r) {
            const float* from = view_.query(r, h);
            Vec largest = V::zero();
            for (size_t d = 0; d < size; d += L)
                largest = V::max(largest, V::abs(V::load(from + d, V::mask(size - d))));
            q.unit[r] = to_be_rotated.unit[r] =
                A::unit(V::reduce_max(largest) * size_of_scale * growth);
            const Vec factor = V::set(scale / q.unit[r]);
            for (size_t d = 0; d < stride_; d += L) {
                const Vec x =
                    d < size ? V::mul(V::load(from + d, V::mask(size - d)), factor) : V::zero();
                V::store(q.floats + r * stride_ + d, x);
                // For the dimensions that do not rotate.
                V::store(to_be_rotated.floats + r * stride_ + d, x);
            }
        }
    }

    /// Pairs (i, i + half) of all rows.
    void rotate_halves(const float* from, const float* cosines, float* __restrict to) const {
        const size_t half = config_.rotary_dims / 2;
        for (size_t i = 0; i < half; i += L) {
            const auto mask = V::mask(half - i);
            const Vec c = V::load(cosines + i, mask), s = V::load(cosines + half + i, mask);
            for (size_t at = i; at < rows_ * stride_; at += stride_) {
                const Vec a = V::load(from + at, mask), b = V::load(from + at + half, mask);
                V::store(to + at, V::fnma(b, s, V::mul(a, c)), mask);
                V::store(to + at + half, V::fma(a, s, V::mul(b, c)), mask);
            }
        }
    }

    /// Pairs (2i, 2i + 1).
    void rotate_pairs(const float* from, const float* cosines, float* __restrict to) const {
        const size_t half = config_.rotary_dims / 2;
        for (size_t i = 0; i < half; i += L / 2) {
            const auto mask = V::mask(half - i < L / 2 ? 2 * (half - i) : L);
            const auto in_row = V::mask(half - i);
            const Vec c = V::twice(V::load(cosines + i, in_row));
            const Vec s = V::twice(V::load(cosines + half + i, in_row));
            for (size_t at = 2 * i; at < rows_ * stride_; at += stride_) {
                const Vec x = V::load(from + at, mask);
                V::store(to + at, V::fmaddsub(x, c, V::mul(V::swapped(x), s)), mask);
            }
        }
    }

    const TileView<V>& view_;
    const AttentionConfig& config_;
    const size_t rows_, stride_;
    const PreparedQueries plain_, rotated_;
    int32_t* const rotated_by_;  // [kv_heads]: the delta rotated_ is at, or -1
};

/// Where every token of a block has a delta of its own it costs less to rotate the keys down than
/// to rotate the queries up for one token at a time. A block's cosines and sines serve all kv
/// heads.
template <class V, CacheFormat Format>
class RotatedKeys {
    using T = FormatTraits<Format>;
    using Vec = typename V::F;
    static constexpr size_t L = V::lanes;

public:
    RotatedKeys(const TileView<V>& view, Scratch<V>& scratch)
        : view_(view),
          config_(view.config),
          block_(view.layout.block_size),
          angles_(scratch.take(span_blocks(block_) * config_.rotary_dims * block_)),
          keys_(scratch.take((view.layout.key_words() * T::dims_per_word + 1) * L)) {}

    /// Takes over the angles of the tokens of block i of the span.
    void load(size_t i, const int32_t* deltas, size_t tokens) {
        const size_t dims = config_.rotary_dims;
        const float* lut = view_.batch->tables.rotation_trig_lut.values;
        float* table = table_of(i);
        for (size_t t = 0; t < tokens; t += L) {
            const float* rows[L];
            for (size_t j = 0; j < L; ++j)  // past the tokens, any row
                rows[j] = lut + static_cast<size_t>(deltas[t + j < tokens ? t + j : t]) * dims;
            size_t d = 0;
            for (; d + L <= dims; d += L) V::transpose(rows, d, table + d * block_ + t, block_);
            for (; d < dims; ++d)
                for (size_t j = 0; j < L; ++j) table[d * block_ + t + j] = rows[j][d];
        }
    }

    /// Keys as floats, L tokens from `lane` of block i of the span, rotated down by load()'s
    /// angles; good until the next call.
    KeyLanes rotate(const KeyLanes& keys, size_t i, size_t lane) {
        unpack(keys);
        const size_t half = config_.rotary_dims / 2;
        const float* cosines = table_of(i) + lane;
        const float* sines = cosines + half * block_;
        for (size_t p = 0; p < half; ++p) {
            float* a = keys_ + (config_.interleaved ? 2 * p : p) * L;
            float* b = keys_ + (config_.interleaved ? 2 * p + 1 : half + p) * L;
            const Vec c = V::load(cosines + p * block_), s = V::load(sines + p * block_);
            const Vec x = V::load(a), y = V::load(b);
            V::store(a, V::fma(x, c, V::mul(y, s)));
            V::store(b, V::fnma(x, s, V::mul(y, c)));
        }
        return {
            reinterpret_cast<const uint32_t*>(keys_), nullptr, L, config_.layout.key_size, 0, 0};
    }

private:
    float* table_of(size_t i) const { return angles_ + i * config_.rotary_dims * block_; }

    /// keys_ [dimensions][L]
    void unpack(const KeyLanes& keys) {
        for (size_t w = 0; w < keys.key_words; ++w) {
            const uint32_t* words = keys.words + w * block_;
            prefetch_line<0>(words, keys.ahead);
            const auto word = V::load_words(words);
            Vec scale = V::set(1), minimum = V::zero();
            if constexpr (T::quantized) {
                const auto pair = V::load_words(keys.scales + w / T::group_words * block_);
                scale = scale_of<V>(pair), minimum = minimum_of<V>(pair);
            }
            unrolled<T::dims_per_word>([&](auto g) PAGEWHEEL_INLINE {
                Vec x = T::template element<V, g>(word);
                if constexpr (T::quantized) x = V::fma(x, scale, minimum);
                V::store(keys_ + (w * T::dims_per_word + g) * L, x);
            });
        }
    }

    const TileView<V>& view_;
    const AttentionConfig& config_;
    const size_t block_;
    float* const angles_;  // [blocks of a span][rotary_dims][block_size]
    float* const keys_;    // [key_size][L]
};

/// Queries times keys, as the keys' deltas want it: the queries as they are, rotated for a block or
/// for a run of tokens, or the keys rotated. `A` is the arithmetic.
template <class V, CacheFormat Format, class A>
class SpanLogits {
    using T = FormatTraits<Format>;
    using Vec = typename V::F;
    static constexpr size_t L = V::lanes;

public:
    /// Rows of logits are `width` floats apart.
    SpanLogits(const TileView<V>& view, const TileSpan<V, Format>& span, size_t width,
               Scratch<V>& scratch)
        : view_(view),
          span_(span),
          rows_(view.rows),
          width_(width),
          block_(view.layout.block_size),
          key_bytes_(view.layout.key_head_bytes()),
          key_words_(view.layout.key_words()),
          key_groups_(view.layout.key_groups()),
          queries_(view, scratch),
          rotated_keys_(view, scratch) {}

    void load_queries() { queries_.load(); }

    /// Makes the blocks that the span has entered ready.
    void enter_span() {
        for (size_t i = 0; i < span_.blocks; ++i) {
            const int32_t* deltas = span_.block[i].deltas;
            by_keys_[i] = deltas && view_.batch->tables.delta_width > 1 &&
                          rotates_keys(deltas, span_.tokens(i));
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
            } else if (view_.batch->tables.delta_width == 1) {
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
        if (view_.config.soft_cap > 0)
            simd::soft_cap<V>(logits, rows_, width_, 0, span_.keys, view_.config.soft_cap);
    }

private:
    /// Whether a block's deltas differ so often that rotating its keys costs less than rotating the
    /// queries for each run of equal ones.
    static bool rotates_keys(const int32_t* deltas, size_t tokens) {
        size_t runs = 1;
        for (size_t t = 1; t < tokens; ++t) runs += deltas[t] != deltas[t - 1];
        return runs > 1 && runs * 6 > tokens;
    }

    /// Computes the logits of tokens [begin, end) of block i of the span.
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

    /// Computes the logits of a block whose tokens are all rotated differently: by keys rotated
    /// down, L at a time.
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

    const TileView<V>& view_;
    const TileSpan<V, Format>& span_;
    const size_t rows_, width_, block_;
    const size_t key_bytes_, key_words_, key_groups_;  // of one head in a block
    bool by_keys_[span_tokens / 16];                   // of the span's blocks, see rotates_keys()
    TileQueries<V, A> queries_;
    RotatedKeys<V, Format> rotated_keys_;
    float* logits_ = nullptr;  // where compute() puts them
};

}  // namespace pagewheel::kernels
