// Attention over one tile, written once for every vector ISA and cache format. Include only from
// *_avx2.cpp and *_avx512.cpp: everything is a template over the ISA (see
// paged_attention_write.hpp).
#pragma once

#include <type_traits>

#include "kernels/paged_attention_tile.hpp"
#include "kernels/paged_attention_write.hpp"
#include "kernels/unrolled.hpp"

namespace pagewheel::kernels {

/// Queries as the arithmetic of the keys wants them.
struct PreparedQueries {
    float* floats;  // [rows, padded(key_size)], times config.scale, zeros past the head size
    float* sums;    // [rows, groups]: sum over a group's dimensions, in units of `unit`
    float* unit;    // [rows]: value of 1 in the integers; 1 for float arithmetic
    int8_t* high;   // [rows, padded(key_size)]: query / unit = 128 high + low
    int8_t* low;    // [rows, padded(key_size)]
};

/// Probabilities as the arithmetic of the values wants them.
struct PreparedWeights {
    float* floats;  // [rows, span]: p, times the value's scale in u8 and u4
    float* zeros;   // [rows]: sum of weight * zero point, in units of `unit`
    float* unit;    // [rows]
    int8_t* high;   // [rows, span]
    int8_t* low;    // [rows, span]
};

template <class V, CacheFormat F>
struct FormatTraits {
    static constexpr bool quantized = F == CacheFormat::u8 || F == CacheFormat::u4;
    static constexpr size_t bits = F == CacheFormat::f32  ? 32
                                   : F == CacheFormat::u8 ? 8
                                   : F == CacheFormat::u4 ? 4
                                                          : 16;
    static constexpr size_t dims_per_word = 32 / bits;
    static constexpr size_t tokens_per_word = F == CacheFormat::u4 ? 4 : 32 / bits;
    static constexpr size_t nibbles = F == CacheFormat::u4 ? 2 : 1;  // dimensions in a value word
};

/// Float arithmetic: exact but for f32 rounding. `V` gives vectors F of floats, I of words.
template <class V, CacheFormat Format>
struct FloatArithmetic {
    using T = FormatTraits<V, Format>;
    using Vec = typename V::F;

    template <size_t G>
    static Vec unpack(typename V::I word) {
        if constexpr (Format == CacheFormat::f32)
            return V::as_float(word);
        else if constexpr (Format == CacheFormat::bf16)
            return V::as_float(G ? V::keep(word, 0xffff0000u) : V::template shift_left<16>(word));
        else if constexpr (Format == CacheFormat::f16)
            return V::half_to_float(V::template shift_right<16 * G>(word));
        else if constexpr (Format == CacheFormat::u8)
            return V::to_float(V::keep(V::template shift_right<8 * G>(word), 0xff));
        else
            return V::to_float(V::keep(V::template shift_right<G % 4 * 8 + G / 4 * 4>(word), 0xf));
    }

    static void prepare_queries(const PreparedQueries& q, size_t rows, size_t size, size_t stride,
                                size_t groups, float) {
        for (size_t r = 0; r < rows; ++r) {
            q.unit[r] = 1;
            for (size_t g = 0; g < groups; ++g) {
                const size_t begin = g * u4_group;
                const size_t end =
                    Format == CacheFormat::u4 && begin + u4_group < size ? begin + u4_group : size;
                Vec sum = V::zero();
                size_t d = begin;
                for (; d < end; d += V::lanes)
                    sum = V::add(sum, V::load(q.floats + r * stride + d));  // zeros past the end
                q.sums[r * groups + g] = V::sum(sum);
            }
        }
    }

    /// out[r][t] = query r . key t over words [begin, end); words [.., block_size] at the first
    /// lane.
    template <size_t R, size_t N>
    [[gnu::always_inline]] static void dot(const uint32_t* words, size_t block_size, size_t begin,
                                           size_t end, const PreparedQueries& q, size_t row,
                                           size_t stride, Vec (&out)[R][N]) {
        unrolled<R * N>([&](auto i) PAGEWHEEL_INLINE { out[i / N][i % N] = V::zero(); });
        const float* query = q.floats + row * stride;
        for (size_t w = begin; w < end; ++w) {
            typename V::I word[N];
            unrolled<N>([&](auto n) PAGEWHEEL_INLINE {
                word[n] = V::load_words(words + w * block_size + n * V::lanes);
            });
            unrolled<T::dims_per_word>([&](auto g) PAGEWHEEL_INLINE {
                Vec key[N];
                unrolled<N>([&](auto n) PAGEWHEEL_INLINE { key[n] = unpack<g>(word[n]); });
                unrolled<R>([&](auto r) PAGEWHEEL_INLINE {
                    const Vec x = V::set(query[r * stride + w * T::dims_per_word + g]);
                    unrolled<N>([&](auto n)
                                    PAGEWHEEL_INLINE { out[r][n] = V::fma(key[n], x, out[r][n]); });
                });
            });
        }
    }

    /// floats [rows, span] become weights with scales and zeros [span], which are 0 past the end.
    static void prepare_weights(const PreparedWeights& p, const float* probabilities, size_t rows,
                                size_t n, size_t span, const float* scales, const float* zeros) {
        if constexpr (T::quantized) {
            for (size_t r = 0; r < rows; ++r) {
                Vec zero = V::zero();
                for (size_t t = 0; t < n; t += V::lanes) {
                    const Vec w =
                        V::mul(V::load(probabilities + r * span + t), V::load(scales + t));
                    V::store(p.floats + r * span + t, w);
                    zero = V::fma(w, V::load(zeros + t), zero);
                }
                p.zeros[r] = V::sum(zero);
                p.unit[r] = 1;
            }
        } else {
            (void)p, (void)probabilities, (void)rows, (void)n, (void)span, (void)scales,
                (void)zeros;
        }
    }

    template <size_t R, size_t N>
    struct Sums {
        Vec value[R][N][T::nibbles];
        [[gnu::always_inline]] Sums() {
            unrolled<R * N * T::nibbles>([&](auto i) PAGEWHEEL_INLINE {
                value[i / T::nibbles / N][i / T::nibbles % N][i % T::nibbles] = V::zero();
            });
        }
        [[gnu::always_inline]] Vec get(size_t r, size_t n, size_t nibble) const {
            return value[r][n][nibble];
        }
    };

    /// sums += weights of `tokens` tokens from `first` of the span times a block's values.
    template <size_t R, size_t N>
    [[gnu::always_inline]] static void accumulate(const uint32_t* words, size_t row_words,
                                                  size_t tokens, const typename V::Mask (&mask)[N],
                                                  const PreparedWeights& p,
                                                  const float* probabilities, size_t row,
                                                  size_t span, size_t first, Sums<R, N>& sums) {
        const float* weights = (T::quantized ? p.floats : probabilities) + row * span + first;
        for (size_t t = 0; t < tokens; t += T::tokens_per_word, words += row_words) {
            // A word may hold tokens that were never written: 0 times their NaN would be NaN.
            const uint32_t valid = T::bits == 16 && t + 1 == tokens ? 0xffffu : ~0u;
            typename V::I word[N];
            unrolled<N>([&](auto n) PAGEWHEEL_INLINE {
                word[n] = V::keep(V::load_words(words + n * V::lanes, mask[n]), valid);
            });
            unrolled<T::dims_per_word>([&](auto g) PAGEWHEEL_INLINE {
                constexpr size_t token = T::nibbles == 2 ? g % 4 : g;
                constexpr size_t nibble = T::nibbles == 2 ? g / 4 : 0;
                Vec v[N];
                unrolled<N>([&](auto n) PAGEWHEEL_INLINE { v[n] = unpack<g>(word[n]); });
                unrolled<R>([&](auto r) PAGEWHEEL_INLINE {
                    const Vec weight = V::set(weights[r * span + t + token]);
                    unrolled<N>([&](auto n) PAGEWHEEL_INLINE {
                        sums.value[r][n][nibble] = V::fma(v[n], weight, sums.value[r][n][nibble]);
                    });
                });
            });
        }
    }
};

/// One tile. `A` is the arithmetic.
template <class V, CacheFormat Format, class A>
class TileKernel {
    using T = FormatTraits<V, Format>;
    using Vec = typename V::F;
    static constexpr size_t L = V::lanes;

public:
    static size_t scratch_floats(const AttentionConfig& config, size_t rows) {
        TileKernel kernel(config, rows);
        kernel.carve(nullptr);
        return kernel.used_;
    }

    static void attend(const AttentionConfig& config, const AttentionBatch& batch,
                       const AttentionTile& tile, const TileResult& result, float* scratch) {
        TileKernel kernel(config, batch, tile, scratch);
        kernel.attend(result);
    }

    static void score(const AttentionConfig& config, const AttentionBatch& batch,
                      const AttentionTile& tile, const RowStatistics* statistics, float* scores,
                      float* scratch) {
        TileKernel kernel(config, batch, tile, scratch);
        kernel.score(statistics, scores);
    }

private:
    TileKernel(const AttentionConfig& config, size_t rows)
        : config_(config), layout_(config.layout), rows_(rows) {
        block_ = layout_.block_size;
        span_blocks_ = span_tokens > block_ ? span_tokens / block_ : 1;
        span_ = span_blocks_ * block_;
        ratio_ = config.heads / layout_.kv_heads;
        stride_ = padded(layout_.key_size);
        key_groups_ = layout_.groups(layout_.key_size);
        value_groups_ = layout_.groups(layout_.value_size);
        key_bytes_ = layout_.key_head_bytes();
        value_bytes_ = layout_.value_head_bytes();
        key_words_ = layout_.key_words();
    }

    TileKernel(const AttentionConfig& config, const AttentionBatch& batch,
               const AttentionTile& tile, float* scratch)
        : TileKernel(config, tile.rows(config.heads / config.layout.kv_heads)) {
        batch_ = &batch;
        tile_ = &tile;
        carve(scratch);
        const size_t s = tile.sequence;
        first_position_ = static_cast<size_t>(batch.past_lens[s]) + tile.token_begin -
                          static_cast<size_t>(batch.subsequence_begins[s]);
        visible_end_ = first_position_ + tile.token_end - tile.token_begin;
        first_entry_ = static_cast<size_t>(batch.block_indices_begins[s]);
        load_queries();
    }

    // ---- scratch

    template <class E = float>
    E* take(size_t count) {
        E* p = scratch_ ? reinterpret_cast<E*>(scratch_ + used_) : nullptr;
        used_ += padded((count * sizeof(E) + 3) / 4);
        return p;
    }

    PreparedQueries take_queries() {
        PreparedQueries q;
        q.floats = take(rows_ * stride_);
        q.sums = take(rows_ * key_groups_);
        q.unit = take(rows_);
        q.high = take<int8_t>(rows_ * stride_);
        q.low = take<int8_t>(rows_ * stride_);
        return q;
    }

    void carve(float* scratch) {
        scratch_ = scratch;
        used_ = 0;
        plain_ = take_queries();
        turned_ = take_queries();
        logits_ = take(rows_ * span_);
        correction_ = take(rows_);
        maximum_ = take(rows_);
        scales_ = take((value_groups_ + 1) * span_);
        zeros_ = take((value_groups_ + 1) * span_);
        weights_.floats = take(rows_ * span_);
        weights_.zeros = take(rows_);
        weights_.unit = take(rows_);
        weights_.high = take<int8_t>(rows_ * span_);
        weights_.low = take<int8_t>(rows_ * span_);
    }

    // ---- queries

    void load_queries() {
        const size_t size = layout_.key_size;
        const Vec scale = V::set(config_.scale);
        Vec largest = V::zero();
        for (size_t r = 0; r < rows_; ++r) {
            const size_t head = tile_->kv_head * ratio_ + r % ratio_;
            const float* from =
                batch_->query + ((tile_->token_begin + r / ratio_) * config_.heads + head) * size;
            float* to = plain_.floats + r * stride_;
            for (size_t d = 0; d < stride_; d += L) {
                const Vec x = V::mul(V::load(from + d, V::mask(d < size ? size - d : 0)), scale);
                largest = V::max(largest, V::abs(x));
                V::store(to + d, x);
            }
        }
        // Rotation lengthens no pair, so no element grows by more than the square root of 2.
        amplitude_ = V::largest(largest) * (batch_->num_rotated > 0 ? 1.41422f : 1.0f);
        A::prepare_queries(plain_, rows_, size, stride_, key_groups_, amplitude_);
    }

    /// turned_ = the queries turned up by LUT row `delta`.
    void turn_queries(int32_t delta) {
        const size_t half = config_.rotary_dims / 2;
        const float* cosines =
            batch_->rotation_trig_lut + static_cast<size_t>(delta) * config_.rotary_dims;
        for (size_t r = 0; r < rows_; ++r) {
            const float* from = plain_.floats + r * stride_;
            float* to = turned_.floats + r * stride_;
            if (config_.interleaved)
                turn_pairs(from, cosines, half, to);
            else
                turn_halves(from, cosines, half, to);
            for (size_t d = 2 * half; d < stride_; ++d) to[d] = from[d];
        }
        A::prepare_queries(turned_, rows_, layout_.key_size, stride_, key_groups_, amplitude_);
    }

    static void turn_halves(const float* x, const float* cosines, size_t half,
                            float* __restrict out) {
        for (size_t i = 0; i < half; i += L) {
            const auto mask = V::mask(half - i);
            const Vec c = V::load(cosines + i, mask), s = V::load(cosines + half + i, mask);
            const Vec a = V::load(x + i, mask), b = V::load(x + half + i, mask);
            V::store(out + i, V::sub(V::mul(a, c), V::mul(b, s)), mask);
            V::store(out + half + i, V::fma(a, s, V::mul(b, c)), mask);
        }
    }

    static void turn_pairs(const float* x, const float* cosines, size_t half,
                           float* __restrict out) {
        for (size_t i = 0; i < half; ++i) {
            const float c = cosines[i], s = cosines[half + i], a = x[2 * i], b = x[2 * i + 1];
            out[2 * i] = a * c - b * s;
            out[2 * i + 1] = a * s + b * c;
        }
    }

    // ---- logits

    const uint8_t* keys_of(size_t block) const {
        const auto b = static_cast<size_t>(batch_->block_indices[first_entry_ + block]);
        return batch_->key_blocks + (b * layout_.kv_heads + tile_->kv_head) * key_bytes_;
    }
    const uint8_t* values_of(size_t block) const {
        const auto b = static_cast<size_t>(batch_->block_indices[first_entry_ + block]);
        return batch_->value_blocks + (b * layout_.kv_heads + tile_->kv_head) * value_bytes_;
    }

    /// logits_ of the block's tokens [0, n), at `column` of the span.
    void block_logits(size_t block, size_t n, size_t column) {
        const int32_t* deltas =
            batch_->num_rotated ? deltas_of_block(*batch_, first_entry_ + block) : nullptr;
        if (!deltas) return lane_logits(plain_, block, 0, n, column);
        for (size_t begin = 0, end = n; begin < n; begin = end, end = n) {
            if (batch_->delta_width > 1)  // a run of tokens with one delta
                for (end = begin + 1; end < n && deltas[end] == deltas[begin];) ++end;
            if (deltas[begin] != 0) turn_queries(deltas[begin]);
            lane_logits(deltas[begin] ? turned_ : plain_, block, begin, end, column);
        }
    }

    /// logits_ of the block's tokens [begin, end).
    void lane_logits(const PreparedQueries& q, size_t block, size_t begin, size_t end,
                     size_t column) {
        const uint8_t* keys = keys_of(block);
        size_t lane = begin / L * L;
        for (; lane + L < end; lane += 2 * L)
            V::for_rows(rows_, [&](auto R, size_t row) {
                row_logits<R, 2>(q, keys, row, lane, begin, end, column);
            });
        if (lane < end)
            V::for_rows(rows_, [&](auto R, size_t row) {
                row_logits<R, 1>(q, keys, row, lane, begin, end, column);
            });
    }

    template <size_t R, size_t N>
    [[gnu::noinline]] void row_logits(const PreparedQueries& q, const uint8_t* keys, size_t row,
                                      size_t lane, size_t begin, size_t end, size_t column) {
        const uint32_t* words = reinterpret_cast<const uint32_t*>(keys) + lane;
        const size_t all = key_words_, groups = T::quantized ? key_groups_ : 1;
        constexpr size_t group_words = u4_group / T::dims_per_word;
        const float* scales = reinterpret_cast<const float*>(words + all * block_);
        Vec total[R][N];
        unrolled<R * N>([&](auto i) PAGEWHEEL_INLINE { total[i / N][i % N] = V::zero(); });
        for (size_t g = 0; g < groups; ++g) {
            const size_t first = g * group_words;
            const size_t last =
                Format == CacheFormat::u4 && first + group_words < all ? first + group_words : all;
            Vec dots[R][N];
            A::template dot<R, N>(words, block_, first, last, q, row, stride_, dots);
            unrolled<R * N>([&](auto i) PAGEWHEEL_INLINE {
                constexpr size_t r = i / N, n = i % N;
                if constexpr (T::quantized) {
                    const Vec scale = V::load(scales + g * block_ + n * L);
                    const Vec zero = V::load(scales + (groups + g) * block_ + n * L);
                    const Vec sum = V::set(q.sums[(row + r) * groups + g]);
                    total[r][n] = V::fma(scale, V::fnma(zero, sum, dots[r][n]), total[r][n]);
                } else {
                    total[r][n] = dots[r][n];
                }
            });
        }
        unrolled<R * N>([&](auto i) PAGEWHEEL_INLINE {
            constexpr size_t r = i / N, n = i % N;
            const size_t at = lane + n * L;
            const auto mask = V::mask(begin > at ? begin - at : 0, end - at);
            Vec x = total[r][n];
            if constexpr (T::quantized) x = V::mul(x, V::set(q.unit[row + r]));
            V::store(logits_ + (row + r) * span_ + column + at, x, mask);
        });
    }

    /// logits_ of the span that starts at `block`; returns its number of keys.
    size_t span_logits(size_t block, size_t end) {
        size_t n = 0;
        for (size_t b = block; b < end; ++b) {
            const size_t left = visible_end_ - b * block_;
            const size_t tokens = left < block_ ? left : block_;
            const size_t next = b + span_blocks_;
            if (next < tile_->block_end) prefetch(keys_of(next), key_bytes_);
            block_logits(b, tokens, n);
            n += tokens;
        }
        return n;
    }

    /// Lanes [low, high) of the span are what the row sees.
    struct Visible {
        size_t low, high;
    };
    Visible visible(size_t row, size_t first_key, size_t n) const {
        const size_t position = first_position_ + row / ratio_;
        Visible v{0, position + 1 < first_key ? 0 : position + 1 - first_key};
        if (v.high > n) v.high = n;
        if (config_.sliding_window && position + 1 > config_.sliding_window + first_key)
            v.low = position + 1 - config_.sliding_window - first_key;
        if (v.low > v.high) v.low = v.high;
        return v;
    }

    /// Adds the position's bias, hides what the row does not see; returns the largest logit.
    Vec mask_row(size_t row, size_t first_key, size_t n) {
        const Visible v = visible(row, first_key, n);
        float* logits = logits_ + row * span_;
        const float slope =
            batch_->alibi_slopes ? batch_->alibi_slopes[tile_->kv_head * ratio_ + row % ratio_] : 0;
        const float start =
            static_cast<float>(first_key) - static_cast<float>(first_position_ + row / ratio_);
        Vec largest = V::set(hidden);
        for (size_t c = 0; c < padded(n); c += L) {
            Vec x = V::load(logits + c);
            if (slope != 0)
                x = V::fma(V::set(slope), V::add(V::iota(), V::set(start + static_cast<float>(c))),
                           x);
            if (c < v.low || c + L > v.high)
                x = V::select(V::mask(v.low > c ? v.low - c : 0, v.high > c ? v.high - c : 0), x,
                              V::set(hidden));
            V::store(logits + c, x);
            largest = V::max(largest, x);
        }
        return largest;
    }

    /// exp(x - maximum), 0 for what is hidden or vanishes.
    static Vec probability(Vec x, Vec maximum) {
        const Vec e = V::sub(x, maximum);
        return V::zero_below(e, V::set(-87.0f), V::exp(V::max(V::set(-87.0f), e)));
    }

    /// logits_ become probabilities under the new maximum.
    void softmax(size_t first_key, size_t n, const TileResult& result) {
        for (size_t r = 0; r < rows_; ++r) {
            float* logits = logits_ + r * span_;
            const float span_largest = V::largest(mask_row(r, first_key, n));
            const float before = result.maximum[r];
            const float now = span_largest > before ? span_largest : before;
            Vec sum = V::zero();
            const Vec maximum = V::set(now);
            for (size_t c = 0; c < padded(n); c += L) {
                const Vec p = probability(V::load(logits + c), maximum);
                V::store(logits + c, p);
                sum = V::add(sum, p);
            }
            correction_[r] = V::first(probability(V::set(before), maximum));
            result.maximum[r] = now;
            result.sum[r] = result.sum[r] * correction_[r] + V::sum(sum);
        }
    }

    // ---- values

    /// scales_ and zeros_ [groups][span] of the span's values, 0 past its end.
    void gather_scales(size_t block, size_t end, size_t n) {
        const size_t data = layout_.value_rows() * layout_.value_row_words();
        for (size_t b = block; b < end; ++b) {
            const float* from = reinterpret_cast<const float*>(values_of(b)) + data;
            const size_t column = (b - block) * block_;
            for (size_t g = 0; g < value_groups_; ++g)
                for (size_t c = 0; c < block_ && column + c < n; c += L) {
                    const auto mask = V::mask(n - column - c);
                    V::store(scales_ + g * span_ + column + c,
                             V::load(from + g * block_ + c, mask));
                    V::store(zeros_ + g * span_ + column + c,
                             V::load(from + (value_groups_ + g) * block_ + c, mask));
                }
        }
        for (size_t g = 0; g < value_groups_; ++g)
            for (size_t c = (n + L - 1) / L * L; c < padded(n); c += L) {
                V::store(scales_ + g * span_ + c, V::zero());
                V::store(zeros_ + g * span_ + c, V::zero());
            }
    }

    /// result.acc = result.acc * correction + probabilities x values of the span.
    void span_values(size_t block, size_t end, size_t n, const TileResult& result) {
        if constexpr (T::quantized) gather_scales(block, end, n);
        const size_t row_words = layout_.value_row_words();
        const size_t group_words = T::nibbles == 2 ? u4_group / 2 : row_words;
        for (size_t first = 0, g = 0; first < row_words; first += group_words, ++g) {
            A::prepare_weights(weights_, logits_, rows_, padded(n), span_, scales_ + g * span_,
                               zeros_ + g * span_);
            const size_t last = first + group_words < row_words ? first + group_words : row_words;
            V::for_rows(rows_, [&](auto R, size_t row) {
                constexpr size_t N = V::template value_vectors<R, T::nibbles>;
                for (size_t word = first; word < last; word += N * L)
                    row_values<R, N>(block, end, n, row, first, word, last, result);
            });
        }
    }

    /// The same for rows [row, row + R) and N vectors from `word` of the group's [first, last).
    template <size_t R, size_t N>
    [[gnu::noinline]] void row_values(size_t block, size_t end, size_t n, size_t row, size_t first,
                                      size_t word, size_t last, const TileResult& result) {
        typename V::Mask mask[N];
        unrolled<N>([&](auto v) PAGEWHEEL_INLINE {
            mask[v] = V::mask(last > word + v * L ? last - word - v * L : 0);
        });
        typename A::template Sums<R, N> sums;
        for (size_t b = block; b < end; ++b) {
            const size_t column = (b - block) * block_;
            const size_t next = b + span_blocks_;
            if (row + word == 0 && next < tile_->block_end) prefetch(values_of(next), value_bytes_);
            A::template accumulate<R, N>(reinterpret_cast<const uint32_t*>(values_of(b)) + word,
                                         layout_.value_row_words(),
                                         n - column < block_ ? n - column : block_, mask, weights_,
                                         logits_, row, span_, column, sums);
        }
        // A word of u4 holds a dimension of the group's first and one of its second half.
        const size_t dimension = T::nibbles * first + (word - first);
        unrolled<R * N * T::nibbles>([&](auto i) PAGEWHEEL_INLINE {
            constexpr size_t r = i / T::nibbles / N, v = i / T::nibbles % N, h = i % T::nibbles;
            float* out = result.acc + (row + r) * padded(layout_.value_size) + dimension + v * L +
                         h * (last - first);
            Vec x = sums.get(r, v, h);
            if constexpr (T::quantized)
                x = V::mul(V::sub(x, V::set(weights_.zeros[row + r])),
                           V::set(weights_.unit[row + r]));
            const Vec before = V::mul(V::load(out, mask[v]), V::set(correction_[row + r]));
            V::store(out, V::add(before, x), mask[v]);
        });
    }

    // ---- the two passes

    /// A block apart, while others are computed: a whole span at once would fill the core's queue.
    static void prefetch(const uint8_t* p, size_t bytes) {
        for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + i);
    }

    void attend(const TileResult& result) {
        for (size_t r = 0; r < rows_; ++r) result.maximum[r] = lowest, result.sum[r] = 0;
        for (size_t i = 0; i < rows_ * padded(layout_.value_size); ++i) result.acc[i] = 0;
        for (size_t b = tile_->block_begin; b < tile_->block_end; b += span_blocks_) {
            const size_t end =
                b + span_blocks_ < tile_->block_end ? b + span_blocks_ : tile_->block_end;
            const size_t n = span_logits(b, end);
            softmax(b * block_, n, result);
            span_values(b, end, n, result);
        }
    }

    void score(const RowStatistics* statistics, float* scores) {
        for (size_t b = tile_->block_begin; b < tile_->block_end; b += span_blocks_) {
            const size_t end =
                b + span_blocks_ < tile_->block_end ? b + span_blocks_ : tile_->block_end;
            const size_t n = span_logits(b, end);
            for (size_t r = 0; r < rows_; ++r) {
                mask_row(r, b * block_, n);
                const Vec maximum = V::set(statistics[r].maximum);
                const Vec inverse = V::set(statistics[r].inverse_sum);
                for (size_t c = 0; c < n; c += L) {
                    const auto mask = V::mask(n - c);
                    const Vec p = probability(V::load(logits_ + r * span_ + c), maximum);
                    V::store(scores + c, V::fma(p, inverse, V::load(scores + c, mask)), mask);
                }
            }
            scores += n;
        }
    }

    static constexpr float hidden = -3e38f;  // below every logit
    static constexpr float lowest = -1e30f;  // the maximum of no keys; far above `hidden`

    const AttentionConfig& config_;
    const CacheLayout& layout_;
    const AttentionBatch* batch_ = nullptr;
    const AttentionTile* tile_ = nullptr;
    size_t rows_, block_, span_blocks_, span_, ratio_, stride_, key_groups_, value_groups_;
    size_t key_bytes_, value_bytes_;  // of one head in a block
    size_t key_words_;
    size_t first_position_ = 0;  // of the first row
    size_t visible_end_ = 0;     // one past the last row's position
    size_t first_entry_ = 0;     // of the sequence in block_indices
    float amplitude_ = 0;        // no element of a query, turned or not, is larger

    float* scratch_ = nullptr;
    size_t used_ = 0;
    PreparedQueries plain_, turned_;
    PreparedWeights weights_;
    float* logits_ = nullptr;      // [rows, span]; after softmax(), probabilities
    float* correction_ = nullptr;  // [rows]: what the span's maximum makes of the sums before it
    float* maximum_ = nullptr;
    float *scales_ = nullptr, *zeros_ = nullptr;
};

/// Calls body(std::integral_constant<CacheFormat, format>()).
template <class V, class Body>
auto for_format(CacheFormat format, const Body& body) {
    switch (format) {
        case CacheFormat::f32:
            return body(std::integral_constant<CacheFormat, CacheFormat::f32>());
        case CacheFormat::bf16:
            return body(std::integral_constant<CacheFormat, CacheFormat::bf16>());
        case CacheFormat::f16:
            return body(std::integral_constant<CacheFormat, CacheFormat::f16>());
        case CacheFormat::u8:
            return body(std::integral_constant<CacheFormat, CacheFormat::u8>());
        default:
            return body(std::integral_constant<CacheFormat, CacheFormat::u4>());
    }
}

/// The calls of ISA `V`; `Kernel` is its TileKernel of a format.
template <class V, template <CacheFormat> class Kernel>
constexpr AttentionVariant attention_variant() {
    return {
        [](const AttentionConfig& config, size_t rows) {
            return for_format<V>(config.layout.format, [&](auto format) {
                return Kernel<format>::scratch_floats(config, rows);
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
        [](const CacheLayout& layout, const AttentionBatch& batch, size_t sequence, size_t token) {
            TokenWriter<V>(layout).write(batch, sequence, token);
        }};
}

}  // namespace pagewheel::kernels
