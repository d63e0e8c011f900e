// Attention over one tile of few rows, written once for every vector ISA and cache format: keys and
// values are read as they lie in the cache, which is what decoding spends its time on. Include only
// from *_avx2.cpp and *_avx512.cpp: everything is a template over the ISA (see
// paged_attention_write.hpp).
#pragma once

#include "kernels/paged_attention_arithmetic.hpp"
#include "kernels/paged_attention_queries.hpp"
#include "kernels/paged_attention_soft_cap.hpp"
#include "kernels/paged_attention_span.hpp"
#include "kernels/paged_attention_turned_keys.hpp"
#include "kernels/paged_attention_write.hpp"

namespace pagewheel::kernels {

/// One tile. `A` is the arithmetic. Keys are read a span at a time; head after head computes the
/// span's logits, softmax and product with the values, while the next span is fetched.
template <class V, CacheFormat Format, class A>
class TileKernel {
    using T = FormatTraits<Format>;
    using Vec = typename V::F;
    static constexpr size_t L = V::lanes;

public:
    static size_t scratch_floats(const AttentionConfig& config, size_t rows, size_t kv_heads) {
        Scratch<V> scratch(nullptr);
        TileKernel kernel(config, rows, kv_heads, scratch);
        return scratch.used();
    }

    static void attend(const AttentionConfig& config, const AttentionBatch& batch,
                       const AttentionTile& tile, const TileResult& result, float* memory) {
        Scratch<V> scratch(memory);
        TileKernel kernel(config, batch, tile, scratch);
        kernel.attend(result);
    }

    static void score(const AttentionConfig& config, const AttentionBatch& batch,
                      const AttentionTile& tile, const RowStatistics* statistics, float* scores,
                      float* memory) {
        Scratch<V> scratch(memory);
        TileKernel kernel(config, batch, tile, scratch);
        kernel.score(statistics, scores);
    }

private:
    TileKernel(const AttentionConfig& config, size_t rows, size_t kv_heads, Scratch<V>& scratch)
        : config_(config),
          layout_(config.layout),
          rows_(rows),
          span_(config),
          queries_(config, rows, kv_heads, scratch),
          turned_keys_(config, scratch) {
        block_ = layout_.block_size;
        span_blocks_ = span_blocks(block_);
        width_ = (span_blocks_ * block_ + 63) / 64 * 64;
        ratio_ = config.heads / layout_.kv_heads;
        key_bytes_ = layout_.key_head_bytes();
        value_bytes_ = layout_.value_head_bytes();
        key_words_ = layout_.key_words();
        key_groups_ = layout_.key_groups();
        row_words_ = layout_.value_row_words();
        value_words_ = layout_.value_rows() * row_words_;
        logits_ = scratch.take(rows_ * width_);
        correction_ = scratch.take(rows_);
        factor_ = scratch.take(rows_);
        span_maximum_ = scratch.take(rows_);
        for (size_t i = 0; i < T::nibbles; ++i) {
            scales_[i] = scratch.take(width_);
            minimums_[i] = scratch.take(width_);
            weights_[i].floats = scratch.take(rows_ * width_);
            weights_[i].offsets = scratch.take(rows_);
            weights_[i].high = scratch.template take<int8_t>(rows_ * width_);
            weights_[i].low = scratch.template take<int8_t>(rows_ * width_);
        }
    }

    TileKernel(const AttentionConfig& config, const AttentionBatch& batch,
               const AttentionTile& tile, Scratch<V>& scratch)
        : TileKernel(config, tile.rows(config.heads / config.layout.kv_heads), tile.kv_heads,
                     scratch) {
        batch_ = &batch;
        tile_ = &tile;
        const size_t s = tile.sequence;
        first_position_ = static_cast<size_t>(batch.past_lens[s]) + tile.token_begin -
                          static_cast<size_t>(batch.subsequence_begins[s]);
        span_.read(batch, tile);
        queries_.load(batch, tile);
        turned_keys_.read(batch);
    }

    /// Makes the blocks from `first` the span.
    void enter_span(size_t first) {
        span_.enter(first);
        for (size_t i = 0; i < span_.blocks; ++i) {
            const int32_t* deltas = span_.block[i].deltas;
            by_keys_[i] = deltas && batch_->delta_width > 1 && turns_keys(deltas, span_.tokens(i));
            if (by_keys_[i]) turned_keys_.load(i, deltas, span_.tokens(i));
        }
    }

    /// Whether a block's deltas differ so often that turning its keys costs less than turning the
    /// queries for each run of equal ones.
    static bool turns_keys(const int32_t* deltas, size_t tokens) {
        size_t runs = 1;
        for (size_t t = 1; t < tokens; ++t) runs += deltas[t] != deltas[t - 1];
        return runs > 1 && runs * 6 > tokens;
    }

    // ---- logits

    /// logits_ [rows][span] of the tile's kv head `head`.
    void span_logits(size_t head) {
        for (size_t i = 0; i < span_.blocks; ++i) {
            const int32_t* deltas = span_.block[i].deltas;
            const size_t tokens = span_.tokens(i);
            if (!deltas) {
                block_logits(queries_.plain(head), head, i, 0, tokens);
            } else if (batch_->delta_width == 1) {
                block_logits(queries_.turned(head, *deltas), head, i, 0, tokens);
            } else if (by_keys_[i]) {
                turned_keys_logits(head, i, tokens);
            } else {
                for (size_t begin = 0, end; begin < tokens; begin = end) {
                    for (end = begin + 1; end < tokens && deltas[end] == deltas[begin]; ++end) {
                    }
                    block_logits(queries_.turned(head, deltas[begin]), head, i, begin, end);
                }
            }
        }
        if (config_.soft_cap > 0)
            soft_cap<V>(logits_, rows_, width_, 0, span_.keys, config_.soft_cap);
    }

    /// Of tokens [begin, end) of block i of the span.
    void block_logits(const PreparedQueries& q, size_t head, size_t i, size_t begin, size_t end) {
        size_t lane = begin / L * L;
        for (; lane + L < end; lane += 2 * L)
            V::for_rows(rows_, [&](auto R, size_t row) {
                row_logits<R, 2>(q, head, i, row, lane, begin, end);
            });
        if (lane < end)
            V::for_rows(rows_, [&](auto R, size_t row) {
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

    /// Of a block whose tokens are all turned differently: by keys turned down, L at a time.
    void turned_keys_logits(size_t head, size_t i, size_t tokens) {
        const PreparedQueries q = queries_.plain(head);
        for (size_t lane = 0; lane < tokens; lane += L) {
            const KeyLanes turned = turned_keys_.turn(key_lanes(head, i, lane), i, lane);
            V::for_rows(rows_, [&](auto R, size_t row) {
                Vec x[R][1];
                FloatArithmetic<V, CacheFormat::f32>::template logits<R, 1>(turned, q, row, x);
                unrolled<R>([&](auto r) PAGEWHEEL_INLINE {
                    V::store(logits_ + (row + r) * width_ + i * block_ + lane,
                             V::mul(x[r][0], V::set(q.unit[row + r])));
                });
            });
        }
    }

    /// Keys [low, high) of the span are what the row sees.
    struct Visible {
        size_t low, high;
    };
    Visible visible(size_t row) const {
        const size_t next = first_position_ + row / ratio_ + 1;
        Visible v{0, next < span_.first_key ? 0 : next - span_.first_key};
        if (v.high > span_.keys) v.high = span_.keys;
        if (config_.sliding_window && next > config_.sliding_window + span_.first_key)
            v.low = next - config_.sliding_window - span_.first_key;
        if (v.low > v.high) v.low = v.high;
        return v;
    }

    /// Adds the position's bias, hides what the row does not see; returns the largest logit.
    Vec mask_row(size_t head, size_t row) {
        const Visible v = visible(row);
        float* logits = logits_ + row * width_;
        float slope = 0, start = 0;
        if (batch_->alibi_slopes) {
            slope = batch_->alibi_slopes[(tile_->kv_head + head) * ratio_ + row % ratio_] * log2_e;
            start = static_cast<float>(span_.first_key) -
                    static_cast<float>(first_position_ + row / ratio_);
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
        fetched_rows_ = 0;
        for (size_t r = 0; r < rows_; ++r) {
            const float largest = V::largest(mask_row(head, r));
            fetch_values(head, 4);
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
                if (c % (2 * L) == 0) fetch_values(head, 1);
            }
            for (; c < padded(span_.keys); c += L) V::store(logits + c, V::zero());
            sum[r] = sum[r] * correction_[r] + V::sum(total) * factor_[r];
        }
    }

    /// Fetches `count` more rows of the values ahead: softmax reads nothing itself, and what is
    /// left for the product with the values would come in a burst that the memory cannot follow.
    [[gnu::always_inline]] void fetch_values(size_t head, size_t count) {
        if constexpr (T::quantized) {
            const size_t rows = (span_.keys + T::tokens_per_word - 1) / T::tokens_per_word;
            for (; count > 0 && fetched_rows_ < rows; --count, ++fetched_rows_) {
                const uint32_t* words = span_.value_rows[fetched_rows_] + head * value_bytes_ / 4;
                for (size_t w = 0; w < row_words_; w += 16)
                    prefetch_line<0>(words + w, span_.value_ahead[fetched_rows_]);
            }
        }
    }

    // ---- values

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

    /// acc = acc * correction + factor * (probabilities x values of the span).
    void span_values(size_t head, float* acc) {
        const size_t row_words = row_words_, columns = padded(span_.keys);
        const size_t group_words = T::nibbles == 2 ? u4_group : row_words;
        for (size_t first = 0, group = 0; first < row_words;
             first += group_words, group += T::nibbles) {
            if constexpr (T::quantized)
                for (size_t i = 0; i < T::nibbles; ++i) {
                    load_scales(head, group + i, i);
                    weights_[i].unit = A::prepare_scales(scales_[i], minimums_[i], columns);
                    A::prepare_weights(weights_[i], logits_, rows_, columns, width_, scales_[i],
                                       minimums_[i]);
                }
            const size_t last = first + group_words < row_words ? first + group_words : row_words;
            V::for_rows(rows_, [&](auto R, size_t row) {
                constexpr size_t N = V::template value_vectors<R, T::nibbles>;
                for (size_t word = first; word < last; word += N * L)
                    row_values<R, N>(head, row, first, word, last, acc);
            });
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
        A::template weigh<R, N>(values, mask, weights_, logits_, row, width_, sums);
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

    // ---- the two passes

    void attend(const TileResult& result) {
        const size_t all = tile_->kv_heads * rows_, width = padded(layout_.value_size);
        for (size_t r = 0; r < all; ++r) result.maximum[r] = lowest, result.sum[r] = 0;
        for (size_t i = 0; i < all * width; i += L) V::store(result.acc + i, V::zero());
        float* kept = result.kept;
        for (size_t b = tile_->block_begin; b < tile_->block_end; b += span_blocks_) {
            enter_span(b);
            for (size_t h = 0; h < tile_->kv_heads; ++h) {
                const size_t at = h * rows_;
                span_logits(h);
                softmax(h, result.maximum + at, result.sum + at);
                if (kept) kept = keep(kept);
                span_values(h, result.acc + at * width);
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
        for (size_t b = tile_->block_begin; b < tile_->block_end; b += span_blocks_) {
            enter_span(b);
            for (size_t h = 0; h < tile_->kv_heads; ++h) {
                span_logits(h);
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

    const AttentionConfig& config_;
    const CacheLayout& layout_;
    const AttentionBatch* batch_ = nullptr;
    const AttentionTile* tile_ = nullptr;
    size_t rows_, block_, span_blocks_, width_, ratio_;
    size_t key_bytes_, value_bytes_;  // of one head in a block
    size_t key_words_, key_groups_, row_words_;
    size_t value_words_;         // of one head in a block, without the scales
    size_t first_position_ = 0;  // of the first row
    size_t fetched_rows_ = 0;    // of the values ahead of the head, see fetch_values()
    TileSpan<V, Format> span_;
    bool by_keys_[span_tokens / 16];  // of the span's blocks, see turns_keys()
    TileQueries<V, A> queries_;
    TurnedKeys<V, Format> turned_keys_;

    float* logits_;                                // [rows, span]; after softmax(), probabilities
    float *correction_, *factor_, *span_maximum_;  // [rows], see softmax()
    float *scales_[T::nibbles], *minimums_[T::nibbles];
    PreparedWeights weights_[T::nibbles];
};

/// AttentionVariant::sum_kept for what TileKernel::keep() wrote.
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
constexpr AttentionVariant attention_variant() {
    return {
        [](const AttentionConfig& config, size_t rows, size_t kv_heads) {
            return for_format<V>(config.layout.format, [&](auto format) {
                return Kernel<format>::scratch_floats(config, rows, kv_heads);
            });
        },
        [](const AttentionConfig& config, const AttentionBatch& batch, const AttentionTile& tile,
           const TileResult& result, float* scratch) {
            for_format<V>(config.layout.format, [&](auto format) {
                Kernel<format>::attend(config, batch, tile, result, scratch);
            });
        },
        [](const AttentionConfig& config, const AttentionBatch& batch, const AttentionTile& tile,
           const RowStatistics* statistics, float* scores, float* scratch) {
            for_format<V>(config.layout.format, [&](auto format) {
                Kernel<format>::score(config, batch, tile, statistics, scores, scratch);
            });
        },
        sum_kept<V>,
        [](const CacheLayout& layout, const AttentionBatch& batch, size_t sequence, size_t token) {
            TokenWriter<V>(layout).write(batch, sequence, token);
        }};
}

}  // namespace pagewheel::kernels
