// Keys and values in f16.
#pragma once

#include "kernels/cache_formats/traits.hpp"
#include "kernels/half.hpp"

namespace pagewheel::kernels {

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

}  // namespace pagewheel::kernels
