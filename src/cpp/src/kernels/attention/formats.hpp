// Cache formats at compile time: what is in a word, and words as floats.
#pragma once

#include <type_traits>

#include "kernels/cache_layout.hpp"

namespace pagewheel::kernels {

template <CacheFormat F>
struct FormatTraits {
    static constexpr bool quantized = F == CacheFormat::u8 || F == CacheFormat::u4;
    static constexpr size_t bits = F == CacheFormat::f32  ? 32
                                   : F == CacheFormat::u8 ? 8
                                   : F == CacheFormat::u4 ? 4
                                                          : 16;
    static constexpr size_t dims_per_word = 32 / bits;
    static constexpr size_t tokens_per_word = F == CacheFormat::u4 ? 4 : 32 / bits;
    static constexpr size_t nibbles = F == CacheFormat::u4 ? 2 : 1;  // dimensions in a value word
    static constexpr size_t group_words = F == CacheFormat::u4 ? u4_group / dims_per_word : 1024;
};

/// Element G of each word as a float: a dimension of a key, a token of a value; a code in u8 and
/// u4.
template <class V, CacheFormat Format, size_t G>
[[gnu::always_inline]] inline typename V::F element(typename V::I word) {
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

template <class V>
[[gnu::always_inline]] inline typename V::F scale_of(typename V::I word) {
    return V::half_to_float(word);
}
template <class V>
[[gnu::always_inline]] inline typename V::F minimum_of(typename V::I word) {
    return V::half_to_float(V::template shift_right<16>(word));
}

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

}  // namespace pagewheel::kernels
