// A tile of many rows, the blocks that it reads as floats, and its two matrix products in f32. For
// any V (simd/vectors.hpp).
#pragma once

#include "kernels/attention/tile.hpp"
#include "kernels/cache_formats.hpp"
#include "kernels/simd/vectors.hpp"

namespace pagewheel::kernels {

template <class V, CacheFormat Format>
class BlockUnpacker {
    using Vec = typename V::F;
    using Words = typename V::I;
    static constexpr size_t L = V::lanes;
    using T = FormatTraits<Format>;
    static constexpr size_t per_word = T::dims_per_word;

public:
    explicit BlockUnpacker(const CacheLayout& layout) : layout_(layout) {}

    /// out [key_size][block_size]
    void keys(const uint8_t* head, float* out) const {
        const size_t size = layout_.key_size, block = layout_.block_size;
        const auto* words = reinterpret_cast<const uint32_t*>(head);
        const uint32_t* scales =
            reinterpret_cast<const uint32_t*>(head) + layout_.key_words() * layout_.block_size;
        for (size_t first = 0; first < size; first += per_word, words += block)
            for (size_t lane = 0; lane < block; lane += L) {
                const Words word = V::load_words(words + lane);
                Vec scale = V::set(1), minimum = V::zero();
                if constexpr (T::quantized) {
                    const size_t group = first / T::group;
                    const Words pair = V::load_words(scales + group * block + lane);
                    scale = scale_of<V>(pair);
                    minimum = minimum_of<V>(pair);
                }
                unrolled<per_word>([&](auto i) PAGEWHEEL_INLINE {
                    if (first + i < size)
                        V::store(out + (first + i) * block + lane,
                                 dequantized(T::template element<V, i>(word), scale, minimum));
                });
            }
    }

    /// Rotates keys [key_size][block_size] down by `deltas` [width] (width 1 or block_size), rows
    /// of `lut`.
    void rotate(float* keys, const AttentionConfig& config, const float* lut, const int32_t* deltas,
                size_t width) const {
        const size_t half = config.rotary_dims / 2, block = layout_.block_size;
        alignas(64) float cosine[L], sine[L];
        for (size_t i = 0; i < half; ++i) {
            float* a = keys + (config.interleaved ? 2 * i : i) * block;
            float* b = keys + (config.interleaved ? 2 * i + 1 : half + i) * block;
            for (size_t lane = 0; lane < block; lane += L) {
                for (size_t t = 0; t < L; ++t) {
                    const auto delta = static_cast<size_t>(deltas[width == 1 ? 0 : lane + t]);
                    cosine[t] = lut[delta * 2 * half + i];
                    sine[t] = lut[delta * 2 * half + half + i];
                }
                const Vec c = V::load(cosine), s = V::load(sine);
                const Vec x = V::load(a + lane), y = V::load(b + lane);
                V::store(a + lane, V::fma(x, c, V::mul(y, s)));
                V::store(b + lane, V::fnma(x, s, V::mul(y, c)));
            }
        }
    }

    /// out [tokens][width], width = padded(value_size); what is past value_size is unspecified.
    void values(const uint8_t* head, size_t tokens, size_t width, float* out) const {
        if constexpr (T::nibbles == 2)
            nibble_values(head, tokens, width, out);
        else
            whole_values(head, tokens, width, out);
    }

private:
    static float half_of_word(uint32_t word, size_t half) {
        return V::float_of(static_cast<uint16_t>(word >> 16 * half));
    }

    static Vec dequantized(Vec x, Vec scale, Vec minimum) {
        if constexpr (T::quantized) return V::fma(x, scale, minimum);
        (void)scale, (void)minimum;
        return x;
    }

    const uint32_t* value_scales(const uint8_t* head) const {
        return reinterpret_cast<const uint32_t*>(head) +
               layout_.value_rows() * layout_.value_row_words();
    }

    void whole_values(const uint8_t* head, size_t tokens, size_t width, float* out) const {
        const size_t size = layout_.value_size;
        const auto* words = reinterpret_cast<const uint32_t*>(head);
        const uint32_t* scales = value_scales(head);
        for (size_t t = 0; t < tokens; t += per_word, words += size)
            for (size_t d = 0; d < size; d += L) {
                const Words word = V::load_words(words + d, V::mask(size - d));
                unrolled<per_word>([&](auto i) PAGEWHEEL_INLINE {
                    Vec scale = V::set(1), minimum = V::zero();
                    if constexpr (T::quantized) {
                        const uint32_t pair = scales[d / T::group * layout_.block_size + t + i];
                        scale = V::set(half_of_word(pair, 0));
                        minimum = V::set(half_of_word(pair, 1));
                    }
                    if (t + i < tokens)
                        V::store(out + (t + i) * width + d,
                                 dequantized(T::template element<V, i>(word), scale, minimum));
                });
            }
    }

    /// u4: a word holds four tokens of a dimension in a group and of one in the next.
    void nibble_values(const uint8_t* head, size_t tokens, size_t width, float* out) const {
        const size_t size = layout_.value_size, block = layout_.block_size;
        constexpr size_t pair = 2 * T::group;
        const auto* words = reinterpret_cast<const uint32_t*>(head);
        const uint32_t* scales = value_scales(head);
        for (size_t t = 0; t < tokens; t += 4, words += layout_.value_row_words())
            for (size_t begin = 0, group = 0; begin < size; begin += pair, group += 2) {
                const size_t half = (size - begin < pair ? size - begin : pair) / 2;
                for (size_t i = 0; i < half; i += L) {
                    const auto mask = V::mask(half - i);
                    const Words word = V::load_words(words + begin / 2 + i, mask);
                    unrolled<8>([&](auto n) PAGEWHEEL_INLINE {
                        constexpr size_t token = n % 4;
                        if (t + token >= tokens) return;
                        const uint32_t pair = scales[(group + n / 4) * block + t + token];
                        const Vec scale = V::set(half_of_word(pair, 0));
                        const Vec minimum = V::set(half_of_word(pair, 1));
                        V::store(out + (t + token) * width + begin + i + n / 4 * half,
                                 dequantized(T::template element<V, n>(word), scale, minimum),
                                 mask);
                    });
                }
            }
    }

    const CacheLayout& layout_;
};

constexpr size_t max_span = 256;  // keys; at least the largest block, so that a span holds one

/// Its rows go through a span of keys in groups of `GroupRows`: six have sums that fit vector
/// registers.
template <class V, size_t GroupRows = 6>
struct PrefillTile : TileView<V> {
    static constexpr size_t group_rows = GroupRows;
    using TileView<V>::TileView;

    const size_t groups = (this->rows + group_rows - 1) / group_rows;
};

/// acc [rows, padded(value_size)] = acc * correction + factor * unit * sums(r, n) for N vectors of
/// a group's first `live` of R rows.
template <class V, size_t R, size_t N, class Sums>
[[gnu::always_inline]] inline void update_rows(const float* correction, const float* factor,
                                               float unit, float* acc, size_t width, size_t live,
                                               const Sums& sums) {
    unrolled<R>([&](auto r) PAGEWHEEL_INLINE {
        if (r >= live) return;
        const auto c = V::set(correction[r]), f = V::set(factor[r] * unit);
        float* row = acc + r * width;
        unrolled<N>([&](auto n) PAGEWHEEL_INLINE {
            const auto before = V::mul(c, V::load(row + n * V::lanes));
            V::store(row + n * V::lanes, V::fma(f, sums(r, n), before));
        });
    });
}

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
        for_vector_groups<V::columns>(begin / L, end / L, [&](auto N, size_t v) PAGEWHEEL_INLINE {
            dot<N>(queries, v, out);
        });
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
        for_vector_groups<V::columns>(0, width_ / L, [&](auto N, size_t v) PAGEWHEEL_INLINE {
            sum<N>(begin, end, correction, factor, acc + v * L, v * L, live);
        });
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
            add_outer_product<V::add_product>(
                acc, [&](auto r) PAGEWHEEL_INLINE { return V::set(queries[r * stride + d]); },
                [&](auto n) PAGEWHEEL_INLINE { return V::load(keys[n] + at); });
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
            for (; t < stop; ++t, values += stride)
                add_outer_product<V::add_product>(
                    acc,
                    [&](auto r) PAGEWHEEL_INLINE { return V::set(weights_[r * max_span + t]); },
                    [&](auto n) PAGEWHEEL_INLINE { return V::load(values + n * L); });
        }
        update_rows<V, R, N>(correction, factor, 1, out, width_, live,
                             [&](auto r, auto n) PAGEWHEEL_INLINE { return acc[r][n]; });
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
