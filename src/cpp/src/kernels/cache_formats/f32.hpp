// Keys and values in f32.
#pragma once

#include "kernels/cache_formats/traits.hpp"

namespace pagewheel::kernels {

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

}  // namespace pagewheel::kernels
