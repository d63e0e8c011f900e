// Floats in what the cache formats hold, for any V (simd/vectors.hpp).
#pragma once

#include <cstdint>

#include "kernels/simd/vectors.hpp"

namespace pagewheel::kernels::simd {

/// What TokenWriter needs.
template <class V>
struct Encoder {
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

}  // namespace pagewheel::kernels::simd
