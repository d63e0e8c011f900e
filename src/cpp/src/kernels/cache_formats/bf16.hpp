// Keys and values in bf16: the upper half of an f32.
#pragma once

#include "kernels/cache_formats/traits.hpp"

namespace pagewheel::kernels {

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

}  // namespace pagewheel::kernels
