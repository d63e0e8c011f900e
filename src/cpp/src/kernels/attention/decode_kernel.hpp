// Attention over one tile of few rows, written once for every vector ISA and cache format: keys and
// values are read as they lie in the cache, which is what decoding spends its time on. For any V
// (simd/vectors.hpp).
#pragma once

#include "kernels/attention/decode_float.hpp"
#include "kernels/attention/decode_logits.hpp"
#include "kernels/attention/write.hpp"

namespace pagewheel::kernels {

/// Probabilities times the values of the span that a tile is at. `A` is the arithmetic.
template <class V, CacheFormat Format, class A>
class SpanValues {
    using T = FormatTraits<Format>;
    using Vec = typename V::F;
    static constexpr size_t L = V::lanes;

public:
    /// Rows of probabilities are `width` floats apart.
    SpanValues(const TileView<V>& view, const TileSpan<V, Format>& span, size_t width,
               Scratch<V>& scratch)
        : layout_(view.layout),
          span_(span),
          rows_(view.rows),
          width_(width),
          block_(layout_.block_size),
          value_bytes_(layout_.value_head_bytes()),
          row_words_(layout_.value_row_words()),
          value_words_(layout_.value_rows() * row_words_) {
        for (size_t i = 0; i < T::nibbles; ++i) {
            scales_[i] = scratch.take(width_);
            minimums_[i] = scratch.take(width_);
            weights_[i].floats = scratch.take(rows_ * width_);
            weights_[i].offsets = scratch.take(rows_);
            weights_[i].high = scratch.template take<int8_t>(rows_ * width_);
            weights_[i].low = scratch.template take<int8_t>(rows_ * width_);
        }
    }

    /// Before the first fetch() for a head.
    void begin_head() { fetched_rows_ = 0; }

    /// Fetches `count` more rows of the values ahead: softmax reads nothing itself, and what is
    /// left for the product with the values would come in a burst that the memory cannot follow.
    [[gnu::always_inline]] void fetch(size_t head, size_t count) {
        if constexpr (T::quantized) {
            const size_t rows = (span_.keys + T::tokens_per_word - 1) / T::tokens_per_word;
            for (; count > 0 && fetched_rows_ < rows; --count, ++fetched_rows_) {
                const uint32_t* words = span_.value_rows[fetched_rows_] + head * value_bytes_ / 4;
                for (size_t w = 0; w < row_words_; w += 16)
                    prefetch_line<0>(words + w, span_.value_ahead[fetched_rows_]);
            }
        }
    }

    /// acc [rows, padded(value_size)] = acc * correction + factor * (probabilities [rows, width] x
    /// values of the span); correction and factor [rows].
    void add(size_t head, const float* probabilities, const float* correction, const float* factor,
             float* acc) {
        probabilities_ = probabilities;
        correction_ = correction;
        factor_ = factor;
        const size_t row_words = row_words_, columns = padded(span_.keys);
        const size_t group_words = T::quantized ? T::group : row_words;
        for (size_t first = 0, group = 0; first < row_words;
             first += group_words, group += T::nibbles) {
            if constexpr (T::quantized)
                for (size_t i = 0; i < T::nibbles; ++i) {
                    load_scales(head, group + i, i);
                    weights_[i].unit = A::prepare_scales(scales_[i], minimums_[i], columns);
                    A::prepare_weights(weights_[i], probabilities_, rows_, columns, width_,
                                       scales_[i], minimums_[i]);
                }
            const size_t last = first + group_words < row_words ? first + group_words : row_words;
            simd::for_rows<V>(rows_, [&](auto R, size_t row) {
                constexpr size_t N = V::template value_vectors<R, T::nibbles>;
                for (size_t word = first; word < last; word += N * L)
                    row_values<R, N>(head, row, first, word, last, acc);
            });
        }
    }

private:
    /// scales_[nibble] and minimums_[nibble] [span] of the values' group, 0 past the span's end.
    void load_scales(size_t head, size_t group, size_t nibble) {
        const size_t data = value_words_ + group * block_;
        float *scales = scales_[nibble], *minimums = minimums_[nibble];
        size_t column = 0;
        for (size_t i = 0; i < span_.blocks; ++i) {
            const auto* words =
                reinterpret_cast<const uint32_t*>(span_.block[i].values + head * value_bytes_) +
                data;
            const size_t end = i * block_ + span_.tokens(i);
            for (; column < end; column += L, words += L) {
                const auto word = V::load_words(words, V::mask(end - column));
                prefetch_line<0>(words, span_.block[i].values_ahead);
                V::store(scales + column, scale_of<V>(word));
                V::store(minimums + column, minimum_of<V>(word));
            }
        }
        for (; column < padded(span_.keys); column += L) {
            V::store(scales + column, V::zero());
            V::store(minimums + column, V::zero());
        }
    }

    /// add() for rows [row, row + R) and N vectors from `word` of the group's [first, last).
    template <size_t R, size_t N>
    [[gnu::noinline]] void row_values(size_t head, size_t row, size_t first, size_t word,
                                      size_t last, float* acc) {
        typename V::Mask mask[N];
        unrolled<N>([&](auto v) PAGEWHEEL_INLINE {
            mask[v] = V::mask(last > word + v * L ? last - word - v * L : 0);
        });
        const ValueRows values{span_.value_rows, span_.value_ahead, head * value_bytes_ / 4 + word,
                               span_.keys, fetched_rows_};
        Vec sums[R][N][T::nibbles];
        A::template weigh<R, N>(values, mask, weights_, probabilities_, row, width_, sums);
        // A word of u4 holds a dimension of the first and one of the second half.
        const size_t dimension = T::nibbles * first + (word - first);
        unrolled<R * N * T::nibbles>([&](auto i) PAGEWHEEL_INLINE {
            constexpr size_t r = i / T::nibbles / N, v = i / T::nibbles % N, h = i % T::nibbles;
            float* out = acc + (row + r) * padded(layout_.value_size) + dimension + v * L +
                         h * (last - first);
            Vec x = sums[r][v][h];
            if constexpr (T::quantized)
                x = V::fma(x, V::set(weights_[h].unit), V::set(weights_[h].offsets[row + r]));
            x = V::mul(x, V::set(factor_[row + r]));
            V::store(out, V::fma(V::load(out, mask[v]), V::set(correction_[row + r]), x), mask[v]);
        });
    }

    const CacheLayout& layout_;
    const TileSpan<V, Format>& span_;
    size_t rows_, width_, block_;
    size_t value_bytes_, row_words_, value_words_;  // of one head in a block, without the scales
    size_t fetched_rows_ = 0;                       // of the values ahead of the head
    float *scales_[T::nibbles], *minimums_[T::nibbles];
    PreparedWeights weights_[T::nibbles];
    const float *probabilities_ = nullptr, *correction_ = nullptr, *factor_ = nullptr;  // of add()
};

/// One tile. `A` is the arithmetic. Keys are read a span at a time; head after head computes the
/// span's logits, softmax and product with the values, while the next span is fetched.
template <class V, CacheFormat Format, class A>
class TileKernel {
    using Vec = typename V::F;
    static constexpr size_t L = V::lanes;

public:
    static size_t scratch_floats(const AttentionConfig& config, size_t rows, size_t kv_heads) {
        Scratch<V> scratch(nullptr);
        TileKernel kernel(TileView<V>(config, rows, kv_heads), scratch);
        return scratch.used();
    }

    static void attend(const AttentionConfig& config, const AttentionBatch& batch,
                       const AttentionTile& tile, const TileResult& result, float* memory) {
        Scratch<V> scratch(memory);
        TileKernel(TileView<V>(config, batch, tile), scratch).attend(result);
    }

    static void score(const AttentionConfig& config, const AttentionBatch& batch,
                      const AttentionTile& tile, const RowStatistics* statistics, float* scores,
                      float* memory) {
        Scratch<V> scratch(memory);
        TileKernel(TileView<V>(config, batch, tile), scratch).score(statistics, scores);
    }

private:
    TileKernel(const TileView<V>& view, Scratch<V>& scratch)
        : view_(view),
          rows_(view.rows),
          block_(view.layout.block_size),
          width_((span_blocks(block_) * block_ + 63) / 64 * 64),
          span_(view_),
          span_logits_(view_, span_, width_, scratch),
          span_values_(view_, span_, width_, scratch),
          logits_(scratch.take(rows_ * width_)),
          correction_(scratch.take(rows_)),
          factor_(scratch.take(rows_)),
          span_maximum_(scratch.take(rows_)) {}

    /// Keys [low, high) of the span are what the row sees.
    struct Visible {
        size_t low, high;
    };
    Visible visible(size_t row) const {
        const size_t next = view_.position(row) + 1;
        Visible v{0, next < span_.first_key ? 0 : next - span_.first_key};
        if (v.high > span_.keys) v.high = span_.keys;
        v.low = view_.window_begin(row, span_.first_key) - span_.first_key;
        if (v.low > v.high) v.low = v.high;
        return v;
    }

    /// Adds the position's bias, hides what the row does not see; returns the largest logit.
    Vec mask_row(size_t head, size_t row) {
        const Visible v = visible(row);
        float* logits = logits_ + row * width_;
        float slope = 0, start = 0;
        if (view_.batch->alibi_slopes) {
            slope = view_.batch->alibi_slopes[view_.head_of(row, head)] * log2_e;
            start = static_cast<float>(span_.first_key) - static_cast<float>(view_.position(row));
        }
        Vec largest = V::set(hidden);
        for (size_t c = 0; c < span_.keys; c += L) {
            Vec x = V::load(logits + c);
            const bool partly = c < v.low || c + L > v.high;
            if (slope != 0)
                x = V::fma(V::set(slope), V::add(V::iota(), V::set(start + static_cast<float>(c))),
                           x);
            if (partly)
                x = V::select(V::mask(v.low > c ? v.low - c : 0, v.high > c ? v.high - c : 0), x,
                              V::set(hidden));
            if (partly || slope != 0) V::store(logits + c, x);
            largest = V::max(largest, x);
        }
        return largest;
    }

    /// logits_ become probabilities under the span's maximum, zeros up to a multiple of 16 keys;
    /// correction_ and factor_ what the maximum of all spans makes of those before and of these.
    void softmax(size_t head, float* maximum, float* sum) {
        span_values_.begin_head();
        for (size_t r = 0; r < rows_; ++r) {
            const float largest = V::reduce_max(mask_row(head, r));
            span_values_.fetch(head, 4);
            span_maximum_[r] = largest > lowest ? largest : lowest;
            const float now = span_maximum_[r] > maximum[r] ? span_maximum_[r] : maximum[r];
            correction_[r] = maximum[r] - now;
            factor_[r] = span_maximum_[r] - now;
            maximum[r] = now;
        }
        for (size_t r = 0; r < rows_; r += L) {
            V::store(correction_ + r, V::exp2(V::load(correction_ + r)));
            V::store(factor_ + r, V::exp2(V::load(factor_ + r)));
        }
        for (size_t r = 0; r < rows_; ++r) {
            float* logits = logits_ + r * width_;
            const Vec largest = V::set(span_maximum_[r]);
            Vec total = V::zero();
            size_t c = 0;
            for (; c < span_.keys; c += L) {
                const Vec p = V::exp2(V::sub(V::load(logits + c), largest));
                V::store(logits + c, p);
                total = V::add(total, p);
                if (c % (2 * L) == 0) span_values_.fetch(head, 1);
            }
            for (; c < padded(span_.keys); c += L) V::store(logits + c, V::zero());
            sum[r] = sum[r] * correction_[r] + V::reduce_sum(total) * factor_[r];
        }
    }

    // ---- the two passes

    void attend(const TileResult& result) {
        const size_t all = view_.kv_heads * rows_, width = padded(view_.layout.value_size);
        span_logits_.load_queries();
        for (size_t r = 0; r < all; ++r) result.maximum[r] = lowest, result.sum[r] = 0;
        for (size_t i = 0; i < all * width; i += L) V::store(result.acc + i, V::zero());
        float* kept = result.kept;
        for (size_t b = view_.tile->block_begin; b < view_.tile->block_end;
             b += span_blocks(block_)) {
            span_.enter(b);
            span_logits_.enter_span();
            for (size_t h = 0; h < view_.kv_heads; ++h) {
                const size_t at = h * rows_;
                span_logits_.compute(h, logits_);
                softmax(h, result.maximum + at, result.sum + at);
                if (kept) kept = keep(kept);
                span_values_.add(h, logits_, correction_, factor_, result.acc + at * width);
            }
        }
        for (size_t r = 0; r < all; ++r) result.maximum[r] *= ln_2;
    }

    /// Appends the head's probabilities in the span and the maximum they are under.
    float* keep(float* to) const {
        const size_t columns = padded(span_.keys);
        for (size_t r = 0; r < rows_; ++r) {
            *to = span_maximum_[r] * ln_2;
            to += 16;
            for (size_t c = 0; c < columns; c += L)
                V::store(to + c, V::load(logits_ + r * width_ + c));
            to += columns;
        }
        return to;
    }

    void score(const RowStatistics* statistics, float* scores) {
        span_logits_.load_queries();
        for (size_t b = view_.tile->block_begin; b < view_.tile->block_end;
             b += span_blocks(block_)) {
            span_.enter(b);
            span_logits_.enter_span();
            for (size_t h = 0; h < view_.kv_heads; ++h) {
                span_logits_.compute(h, logits_);
                for (size_t r = 0; r < rows_; ++r) {
                    const RowStatistics& row = statistics[h * rows_ + r];
                    const Vec maximum = V::set(row.maximum * log2_e);
                    mask_row(h, r);
                    for (size_t c = 0; c < span_.keys; c += L) {
                        const auto mask = V::mask(span_.keys - c);
                        const Vec p = V::exp2(V::sub(V::load(logits_ + r * width_ + c), maximum));
                        V::store(scores + c,
                                 V::fma(p, V::set(row.inverse_sum), V::load(scores + c, mask)),
                                 mask);
                    }
                }
            }
            scores += span_.keys;
        }
    }

    static constexpr float hidden = -3e38f;  // below every logit
    static constexpr float lowest = -1e30f;  // the maximum of no keys; far above `hidden`

    const TileView<V> view_;
    const size_t rows_, block_, width_;  // logits of a row lie in `width_` floats
    TileSpan<V, Format> span_;
    SpanLogits<V, Format, A> span_logits_;
    SpanValues<V, Format, A> span_values_;
    float* const logits_;  // [rows, width]; after softmax(), probabilities
    float *const correction_, *const factor_, *const span_maximum_;  // [rows], see softmax()
};

/// DecodeKernels::sum_kept for what TileKernel::keep() wrote.
template <class V>
void sum_kept(const AttentionConfig& config, const AttentionTile& tile, size_t keys,
              const float* kept, const RowStatistics* statistics, float* scores) {
    const size_t rows = tile.kv_heads * tile.rows(config.heads / config.layout.kv_heads);
    const size_t span = span_blocks(config.layout.block_size) * config.layout.block_size;
    for (size_t first = 0; first < keys; first += span) {
        const size_t n = keys - first < span ? keys - first : span, columns = padded(n);
        for (size_t c = 0; c < n; c += V::lanes) V::store(scores + c, V::zero(), V::mask(n - c));
        for (size_t r = 0; r < rows; ++r, kept += 16 + columns) {
            const auto difference = V::set((*kept - statistics[r].maximum) * log2_e);
            const auto factor = V::mul(V::exp2(difference), V::set(statistics[r].inverse_sum));
            for (size_t c = 0; c < n; c += V::lanes) {
                const auto mask = V::mask(n - c);
                V::store(scores + c,
                         V::fma(V::load(kept + 16 + c), factor, V::load(scores + c, mask)), mask);
            }
        }
        scores += n;
    }
}

/// The calls of ISA `V`; `Kernel` is its TileKernel of a format.
template <class V, template <CacheFormat> class Kernel>
DecodeKernels decode_kernels_of(CacheFormat format) {
    return for_format<V>(format, [](auto f) {
        using K = Kernel<f>;
        return DecodeKernels{K::scratch_floats, K::attend, K::score, sum_kept<V>,
                             write_tokens<VectorEncoder<V>>};
    });
}

}  // namespace pagewheel::kernels
