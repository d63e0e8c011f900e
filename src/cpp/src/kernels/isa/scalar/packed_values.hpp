// Single numbers of packed weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/half.hpp"
#include "kernels/packed_linear.hpp"

namespace pagewheel::kernels {

inline float read(const uint8_t* values, size_t i, bool half) {
    if (half) {
        uint16_t bits;
        std::memcpy(&bits, values + i * sizeof bits, sizeof bits);
        return float_of_half(bits);
    }
    float value;
    std::memcpy(&value, values + i * sizeof value, sizeof value);
    return value;
}

/// Reads a group's scales and minima; returns where its k-blocks begin.
inline const uint8_t* read_group(const PackedLinear& weights, const uint8_t* in, float* scales,
                                 float* minima) {
    using Offset = PackedLinear::Offset;
    const uint8_t* offsets = in + weights.scale_bytes();
    for (size_t n = 0; n < PackedLinear::tile_rows; ++n) {
        scales[n] = read(in, n, weights.f16_scales());
        switch (weights.offset()) {
            case Offset::common:
                minima[n] = -weights.common_zero_point() * scales[n];
                break;
            case Offset::u8_zero_point:
                minima[n] = -float(offsets[n]) * scales[n];
                break;
            case Offset::f16_minimum:
                minima[n] = read(offsets, n, true);
                break;
            case Offset::f32_minimum:
                minima[n] = read(offsets, n, false);
                break;
        }
    }
    return offsets + weights.offset_bytes();
}

/// Value of row n and place k of a k-block.
inline int value_at(const PackedLinear& weights, const uint8_t* in, size_t n, size_t k) {
    const size_t high = weights.bits() == 4 ? k / 16 : 0, at = k - 16 * high;
    const int byte = in[(at / 4 * PackedLinear::tile_rows + n) * 4 + at % 4];
    return weights.bits() == 8 ? byte : high == 1 ? byte >> 4 : byte & 15;
}

}  // namespace pagewheel::kernels
