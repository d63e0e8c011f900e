// bf16 without instructions for it: the upper half of an f32.
#pragma once

#include <cstdint>
#include <cstring>

namespace pagewheel::kernels {

inline float float_of_bf16(uint16_t bits) {
    const uint32_t word = uint32_t(bits) << 16;
    float value;
    std::memcpy(&value, &word, sizeof value);
    return value;
}

/// The nearest bf16, of two the even one. A NaN stays one.
inline uint16_t bf16_of_float(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    if (value != value) return uint16_t(bits >> 16 | 0x40u);
    return uint16_t((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

}  // namespace pagewheel::kernels
