// Every cache format at compile time.
//
// FormatTraits<CacheFormat::name> says how a format lies in memory and what an element is. A format
// of numbers (NumberFormat) gives
//     float decode(uint32_t bits), uint32_t encode(float)         one element
//     void encode<E>(const float* x, size_t n, Element* out)      many, by a TokenWriter's E
// and a quantised one (CodeFormat)
//     uint32_t pack_key(const uint8_t* codes)                     of dims_per_word dimensions
// Both give
//     F element<V, G>(I word)        element G of each word: a number, or a code as a float
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cache_layout.hpp"
#include "kernels/half.hpp"

namespace pagewheel::kernels {

template <CacheFormat Format>
struct FormatTraits;

/// More dimensions than a head has.
constexpr size_t whole_head = 1024;

/// Numbers as they are: a word holds neighbouring dimensions of a key, or tokens of a value.
template <class ElementType>
struct NumberFormat {
    using Element = ElementType;
    static constexpr bool quantized = false;
    static constexpr size_t bits = 8 * sizeof(Element);
    static constexpr size_t group = whole_head;
    static constexpr size_t nibbles = 1;
    static constexpr size_t dims_per_word = 32 / bits, tokens_per_word = 32 / bits;
};

/// Codes from 0 to `levels`: x = code * scale + minimum, both of a group of dimensions of a token.
template <size_t Bits, size_t Group>
struct CodeFormat {
    static constexpr bool quantized = true;
    static constexpr size_t bits = Bits;
    static constexpr size_t group = Group;                // dimensions, of 16 or more
    static constexpr size_t nibbles = Bits == 4 ? 2 : 1;  // dimensions in a byte of values
    static constexpr size_t dims_per_word = 32 / bits, tokens_per_word = 4;
    static constexpr float levels = (1 << bits) - 1;
    static constexpr size_t group_words = group / dims_per_word;  // of keys
    static float decode(uint32_t code) { return static_cast<float>(code); }
};

/// Keys and values in f32.
template <>
struct FormatTraits<CacheFormat::f32> : NumberFormat<uint32_t> {
    static float decode(uint32_t bits) { return float_of_bits(bits); }
    static uint32_t encode(float x) { return bits_of_float(x); }
    template <class E>
    static void encode(const float* x, size_t n, Element* out) {
        std::memcpy(out, x, n * sizeof *x);
    }
    template <class V, size_t>
    [[gnu::always_inline]] static typename V::F element(typename V::I word) {
        return V::as_float(word);
    }
};

/// Keys and values in bf16: the upper half of an f32.
template <>
struct FormatTraits<CacheFormat::bf16> : NumberFormat<uint16_t> {
    static float decode(uint32_t bits) { return float_of_bits(bits << 16); }
    static uint32_t encode(float x) {
        const uint32_t bits = bits_of_float(x);
        return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    }
    template <class E>
    static void encode(const float* x, size_t n, Element* out) {
        E::to_bf16(x, n, out);
    }
    template <class V, size_t G>
    [[gnu::always_inline]] static typename V::F element(typename V::I word) {
        return V::as_float(G ? V::bit_and(word, 0xffff0000u) : V::template shift_left<16>(word));
    }
};

/// Keys and values in f16.
template <>
struct FormatTraits<CacheFormat::f16> : NumberFormat<uint16_t> {
    static float decode(uint32_t bits) { return float_of_half(static_cast<uint16_t>(bits)); }
    static uint32_t encode(float x) { return half_of_float(x); }
    template <class E>
    static void encode(const float* x, size_t n, Element* out) {
        E::to_f16(x, n, out);
    }
    template <class V, size_t G>
    [[gnu::always_inline]] static typename V::F element(typename V::I word) {
        return V::half_to_float(V::template shift_right<16 * G>(word));
    }
};

/// Keys and values in 8 bits, with one scale and one minimum for a head of a token.
template <>
struct FormatTraits<CacheFormat::u8> : CodeFormat<8, whole_head> {
    static uint32_t pack_key(const uint8_t* codes) {
        uint32_t word;
        std::memcpy(&word, codes, sizeof word);
        return word;
    }
    template <class V, size_t G>
    [[gnu::always_inline]] static typename V::F element(typename V::I word) {
        return V::to_float(V::bit_and(V::template shift_right<8 * G>(word), 0xff));
    }
};

/// Keys and values in 4 bits, with a scale and a minimum for 16 dimensions of a token.
template <>
struct FormatTraits<CacheFormat::u4> : CodeFormat<4, 16> {
    /// Dimension b is the low nibble of byte b, dimension 4 + b the high one.
    static uint32_t pack_key(const uint8_t* codes) {
        uint32_t low, high;
        std::memcpy(&low, codes, sizeof low);
        std::memcpy(&high, codes + 4, sizeof high);
        return low | high << 4;
    }
    template <class V, size_t G>
    [[gnu::always_inline]] static typename V::F element(typename V::I word) {
        return V::to_float(V::bit_and(V::template shift_right<G % 4 * 8 + G / 4 * 4>(word), 0xf));
    }
};

/// Calls body(std::integral_constant<CacheFormat, format>()). V says whose object file that
/// is in (simd/vectors.hpp); void where the code is compiled for every processor.
template <class V, class Body>
auto for_format(CacheFormat format, const Body& body) {
    switch (format) {
#define PAGEWHEEL_CASE(name) \
    case CacheFormat::name:  \
        return body(std::integral_constant<CacheFormat, CacheFormat::name>());
        PAGEWHEEL_CACHE_FORMATS(PAGEWHEEL_CASE)
#undef PAGEWHEEL_CASE
    }
    __builtin_unreachable();
}

template <class V>
[[gnu::always_inline]] inline typename V::F scale_of(typename V::I word) {
    return V::half_to_float(word);
}
template <class V>
[[gnu::always_inline]] inline typename V::F minimum_of(typename V::I word) {
    return V::half_to_float(V::template shift_right<16>(word));
}

}  // namespace pagewheel::kernels
