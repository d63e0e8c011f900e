// What a tile of packed weights is multiplied with besides its values, for any V
// (simd/vectors.hpp).
#pragma once

#include "kernels/quantized_linear_tile.hpp"
#include "kernels/simd/vectors.hpp"

namespace pagewheel::kernels::simd {

/// Fetches a k-block of `bits` and a group's scales and minima, some way after `weights`.
/// Processors that fetch by themselves do so too late where there are many products for a weight
/// (benchmarks/notebook.md). Past the end of a matrix it costs nothing and harms nothing.
template <int bits>
[[gnu::always_inline]] inline void fetch_ahead(const uint8_t* weights) {
    constexpr size_t distance = 8192, bytes = (bits == 4 ? 256 : 512) + 64;
#pragma GCC unroll 9
    for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(weights + distance + i);
}

/// A group's scales of V::lanes rows of a tile.
template <class V>
typename V::F load_scales(const uint8_t* in, bool f16) {
    return f16 ? V::load_f16(in) : V::load(reinterpret_cast<const float*>(in));
}

/// A group's minima of the tile's rows from `row` on, V::lanes of them.
template <class V>
typename V::F load_minima(const PackedLinear& weights, const uint8_t* in, size_t row,
                          typename V::F scales) {
    switch (weights.offset()) {
        case PackedLinear::Offset::common:
            return V::mul(V::set(-weights.common_zero_point()), scales);
        case PackedLinear::Offset::u8_zero_point:
            return V::sub(V::zero(), V::mul(V::load_u8(in + row), scales));
        case PackedLinear::Offset::f16_minimum:
            return V::load_f16(in + 2 * row);
        case PackedLinear::Offset::f32_minimum:
            return V::load(reinterpret_cast<const float*>(in + 4 * row));
    }
    __builtin_unreachable();
}

}  // namespace pagewheel::kernels::simd
