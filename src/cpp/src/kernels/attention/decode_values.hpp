// Probabilities times the values of the span that a tile of few rows is at. For any V
// (simd/vectors.hpp).
#pragma once

#include "kernels/attention/decode_float.hpp"
#include "kernels/attention/decode_span.hpp"
#include "kernels/attention/scratch.hpp"

namespace pagewheel::kernels {

/// `A` is the arithmetic.
template <class V, CacheFormat Format, class A>
class SpanValues {
    using T = FormatTraits<Format>;
    using Vec = typename V::F;
    static constexpr size_t L = V::lanes;

public:
    /// Of `rows` rows of each kv head; those of probabilities are `width` floats apart.
    SpanValues(const AttentionConfig& config, const TileSpan<V, Format>& span, size_t rows,
               size_t width, Scratch<V>& scratch)
        : layout_(config.layout),
          span_(span),
          rows_(rows),
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

    /// The same for rows [row, row + R) and N vectors from `word` of the group's [first, last).
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

}  // namespace pagewheel::kernels
