// Writing tokens to the cache.
#pragma once

#include <cstring>

#include "kernels/attention/tile.hpp"
#include "kernels/cache_formats.hpp"

namespace pagewheel::kernels {

/// `E` gives range(x, n, low, high), quantize(x, n, low, inverse, levels, codes), half(x) and
/// float_of(half), to_bf16 and to_f16 (x, n, out).
template <class E>
class TokenWriter {
public:
    explicit TokenWriter(const CacheLayout& layout) : layout_(layout) {}

    /// Writes new tokens [first, last) of a sequence. T: the traits of the layout's format.
    template <class T>
    void write(const AttentionBatch& batch, size_t sequence, size_t first, size_t last) const {
        const size_t past = static_cast<size_t>(batch.tables.written_past_lens[sequence]);
        const size_t begin = static_cast<size_t>(batch.tables.written_begins[sequence]);
        const size_t blocks = static_cast<size_t>(batch.tables.block_indices_begins[sequence]);
        for (size_t token = first, count; token < last; token += count) {
            const size_t position = past + token - begin, slot = position % layout_.block_size;
            const auto block = static_cast<size_t>(
                batch.tables.block_indices[blocks + position / layout_.block_size]);
            // Another thread may be writing the rest of a row that is not whole.
            const bool whole = T::quantized && slot % T::tokens_per_word == 0 &&
                               last - token >= T::tokens_per_word;
            count = whole ? T::tokens_per_word : 1;
            uint8_t* keys = batch.key_blocks + block * layout_.key_block_bytes();
            uint8_t* values = batch.value_blocks + block * layout_.value_block_bytes();
            for (size_t h = 0; h < layout_.kv_heads; ++h) {
                const size_t row = token * layout_.kv_heads + h;
                const float* value = batch.value + row * layout_.value_size;
                for (size_t i = 0; i < count; ++i)
                    write_one_key<T>(batch.key + (row + i * layout_.kv_heads) * layout_.key_size,
                                     keys, slot + i);
                if constexpr (!T::quantized)
                    write_value<T>(value, values, slot);
                else if (whole)
                    write_row_of_codes<T>(value, values, slot);
                else
                    write_value_codes<T>(value, values, slot);
                keys += layout_.key_head_bytes();
                values += layout_.value_head_bytes();
            }
        }
    }

private:
    static constexpr size_t at_once = 32;  // numbers that are encoded at once: whole words

    template <class T>
    void write_one_key(const float* key, uint8_t* keys, size_t slot) const {
        if constexpr (T::quantized)
            write_key_codes<T>(key, keys, slot);
        else
            write_key<T>(key, keys, slot);
    }

    /// Codes [n] of x [n] in one group; its scale and minimum to `scale_word`. Codes count from the
    /// minimum and in the scale that are stored, so that only the codes' rounding is an error.
    void quantize(const float* x, size_t n, float levels, uint8_t* codes,
                  uint8_t* scale_word) const {
        float low, high;
        E::range(x, n, low, high);
        uint16_t halves[2] = {E::half(within_half((high - low) / levels)),
                              E::half(within_half(low))};
        if (halves[0] == 0) halves[0] = 0x3c00;  // equal numbers: a scale of 1, all codes 0
        const float inverse = 1 / E::float_of(halves[0]);
        E::quantize(x, n, E::float_of(halves[1]), inverse, levels, codes);
        std::memcpy(scale_word, halves, 4);
    }

    /// x, or the half that is nearest to it where halves end.
    static float within_half(float x) {
        constexpr float largest = 65504;
        return x > largest ? largest : x < -largest ? -largest : x;
    }

    /// x [key_size] to lane `slot` of keys (one kv head).
    template <class T>
    void write_key(const float* x, uint8_t* keys, size_t slot) const {
        const size_t size = layout_.key_size, block = layout_.block_size;
        for (size_t begin = 0; begin < size; begin += at_once) {
            const size_t n = size - begin < at_once ? size - begin : at_once;
            typename T::Element elements[at_once];
            T::template encode<E>(x + begin, n, elements);
            for (size_t d = 0; d < n; d += T::dims_per_word)
                std::memcpy(keys + 4 * ((begin + d) / T::dims_per_word * block + slot),
                            elements + d, 4);
        }
    }

    template <class T>
    void write_key_codes(const float* x, uint8_t* keys, size_t slot) const {
        const size_t size = layout_.key_size, block = layout_.block_size;
        uint8_t* scales = keys + 4 * layout_.key_words() * block;
        uint8_t codes[max_head_size + 2 * T::dims_per_word];
        for (size_t begin = 0; begin < size; begin += T::group)
            quantize(x + begin, size - begin < T::group ? size - begin : T::group, T::levels,
                     codes + begin, scales + 4 * (begin / T::group * block + slot));
        for (size_t d = size; d % T::dims_per_word; ++d) codes[d] = 0;
        for (size_t d = 0; d < size; d += T::dims_per_word) {
            const uint32_t word = T::pack_key(codes + d);
            std::memcpy(keys + 4 * (d / T::dims_per_word * block + slot), &word, 4);
        }
    }

    /// x [value_size] to row `slot` of values (one kv head).
    template <class T>
    void write_value(const float* x, uint8_t* values, size_t slot) const {
        using Element = typename T::Element;
        const size_t size = layout_.value_size;
        uint8_t* row = values + 4 * (slot / T::tokens_per_word * size);
        row += slot % T::tokens_per_word * sizeof(Element);
        if constexpr (T::tokens_per_word == 1)
            return T::template encode<E>(x, size, reinterpret_cast<Element*>(row));
        for (size_t begin = 0; begin < size; begin += at_once) {
            const size_t n = size - begin < at_once ? size - begin : at_once;
            Element elements[at_once];
            T::template encode<E>(x + begin, n, elements);
            for (size_t i = 0; i < n; ++i)
                std::memcpy(row + 4 * (begin + i), elements + i, sizeof(Element));
        }
    }

    /// Writes the scales of a token's value, and its codes to `bytes`: a byte holds the code of one
    /// dimension or of two.
    template <class T>
    void value_codes(const float* x, uint8_t* values, size_t slot, uint8_t* bytes) const {
        const size_t size = layout_.value_size, block = layout_.block_size;
        uint8_t* scales = values + 4 * layout_.value_rows() * layout_.value_row_words();
        constexpr size_t dims = T::nibbles * T::group;
        for (size_t begin = 0; begin < size; begin += dims, bytes += dims / T::nibbles) {
            const size_t n = (size - begin < dims ? size - begin : dims) / T::nibbles;
            uint8_t codes[T::nibbles * max_head_size];
            for (size_t i = 0; i < T::nibbles; ++i)
                quantize(x + begin + i * n, n, T::levels, codes + i * n,
                         scales + 4 * ((begin / T::group + i) * block + slot));
            for (size_t i = 0; i < n; ++i)
                bytes[i] =
                    T::nibbles == 2 ? static_cast<uint8_t>(codes[i] | codes[n + i] << 4) : codes[i];
        }
    }

    template <class T>
    void write_value_codes(const float* x, uint8_t* values, size_t slot) const {
        const size_t row_words = layout_.value_row_words();
        uint8_t bytes[max_head_size];
        value_codes<T>(x, values, slot, bytes);
        uint8_t* to = values + 4 * (slot / T::tokens_per_word * row_words);
        to += slot % T::tokens_per_word;
        for (size_t i = 0; i < row_words; ++i) to[4 * i] = bytes[i];
    }

    /// Writes the codes of four tokens from `slot` on, a word of each dimension at a time.
    template <class T>
    void write_row_of_codes(const float* x, uint8_t* values, size_t slot) const {
        const size_t row_words = layout_.value_row_words();
        uint8_t bytes[T::tokens_per_word][max_head_size];
        for (size_t t = 0; t < T::tokens_per_word; ++t)
            value_codes<T>(x + t * layout_.kv_heads * layout_.value_size, values, slot + t,
                           bytes[t]);
        uint8_t* to = values + 4 * (slot / T::tokens_per_word * row_words);
        for (size_t i = 0; i < row_words; ++i) {
            const uint32_t word = bytes[0][i] | uint32_t(bytes[1][i]) << 8 |
                                  uint32_t(bytes[2][i]) << 16 | uint32_t(bytes[3][i]) << 24;
            std::memcpy(to + 4 * i, &word, sizeof word);
        }
    }

    const CacheLayout& layout_;
};

/// What TokenWriter needs, for any V (simd/vectors.hpp): floats in what the cache formats hold.
template <class V>
struct VectorEncoder {
    static constexpr size_t L = V::lanes;

    static uint16_t half(float x) { return V::half(x); }
    static float float_of(uint16_t half) { return V::float_of(half); }

    static void range(const float* x, size_t n, float& low, float& high) {
        const auto first = V::set(x[0]);
        auto lowest = first, highest = first;
        for (size_t i = 0; i < n; i += L) {
            const auto mask = V::mask(n - i);
            const auto v = V::select(mask, V::load(x + i, mask), first);
            lowest = V::min(lowest, v);
            highest = V::max(highest, v);
        }
        low = V::reduce_min(lowest);
        high = V::reduce_max(highest);
    }

    static void quantize(const float* x, size_t n, float low, float inverse, float levels,
                         uint8_t* codes) {
        for (size_t i = 0; i < n; i += L) {
            const auto from_low = V::sub(V::load(x + i, V::mask(n - i)), V::set(low));
            const auto code = V::max(V::mul(from_low, V::set(inverse)), V::zero());
            V::store_bytes(codes + i, V::min(code, V::set(levels)), n - i);
        }
    }

    /// To the nearest, ties to the even one.
    static void to_bf16(const float* x, size_t n, uint16_t* out) {
        for (size_t i = 0; i < n; i += L) {
            const auto bits = V::as_words(V::load(x + i, V::mask(n - i)));
            const auto odd = V::bit_and(V::template shift_right<16>(bits), 1);
            const auto rounded = V::add_words(V::add_words(bits, odd), V::set_words(0x7fff));
            V::store_halves(out + i, V::low_halves(V::template shift_right<16>(rounded)), n - i);
        }
    }

    static void to_f16(const float* x, size_t n, uint16_t* out) {
        for (size_t i = 0; i < n; i += L)
            V::store_halves(out + i, V::to_f16(V::load(x + i, V::mask(n - i))), n - i);
    }
};

template <class E>
void write_tokens(const CacheLayout& layout, const AttentionBatch& batch, size_t sequence,
                  size_t first, size_t last) {
    for_format<E>(layout.format, [&](auto format) {
        TokenWriter<E>(layout).template write<FormatTraits<format>>(batch, sequence, first, last);
    });
}

}  // namespace pagewheel::kernels
