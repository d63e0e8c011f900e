// A block's keys and values of one head as floats, keys rotated. For any V (simd/vectors.hpp).
#pragma once

#include "kernels/attention/tile.hpp"
#include "kernels/cache_formats/formats.hpp"
#include "kernels/simd/unrolled.hpp"

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

}  // namespace pagewheel::kernels
