// Keys and values in 4 bits, with a scale and a minimum for 16 dimensions of a token.
#pragma once

#include "kernels/cache_formats/traits.hpp"

namespace pagewheel::kernels {

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

}  // namespace pagewheel::kernels
