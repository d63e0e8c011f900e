// The bits of floats, and f16 and bf16 without instructions for them.
#pragma once

#include <cstdint>
#include <cstring>

namespace pagewheel::kernels {

/// Bits that are a float's.
[[gnu::always_inline]] inline float float_of_bits(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
[[gnu::always_inline]] inline uint32_t bits_of_float(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

inline float float_of_half(uint16_t half) {
    const uint32_t sign = uint32_t(half & 0x8000u) << 16, exponent = (half >> 10) & 31u,
                   digits = half & 1023u;
    if (exponent == 0) {  // zero or subnormal: digits * 2^-24
        const float magnitude = float(digits) * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    return float_of_bits(sign | ((exponent == 31 ? 255u : exponent + 112u) << 23) | (digits << 13));
}

/// The nearest f16 towards zero or away from it (halves away); +-65504 for what is larger. Not for
/// NaN.
inline uint16_t half_of_float(float value) {
    const uint16_t sign = value < 0 ? 0x8000u : 0u;
    const float magnitude = value < 0 ? -value : value;
    if (magnitude >= 65504.0f) return uint16_t(sign | 0x7bffu);
    if (magnitude < 0x1p-14f) return uint16_t(sign | uint16_t(magnitude * 0x1p24f + 0.5f));
    // Half of the last digit kept is added; it may carry into the exponent.
    const uint32_t bits = bits_of_float(magnitude) + 0x1000u;
    const uint32_t half = (bits >> 13) - (112u << 10);
    return uint16_t(sign | (half > 0x7bffu ? 0x7bffu : half));
}

inline float float_of_bf16(uint16_t bits) {
    return float_of_bits(uint32_t(bits) << 16);
}

/// The nearest bf16, of two the even one. A NaN stays one.
inline uint16_t bf16_of_float(float value) {
    const uint32_t bits = bits_of_float(value);
    if (value != value) return uint16_t(bits >> 16 | 0x40u);
    return uint16_t((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

}  // namespace pagewheel::kernels
