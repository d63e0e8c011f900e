// What linear layers do to rows of floats, and what a tile of packed weights is multiplied with
// besides its values, for any V (simd/vectors.hpp).
#pragma once

#include "kernels/quantized_linear_tile.hpp"
#include "kernels/simd/math.hpp"
#include "kernels/simd/vectors.hpp"

namespace pagewheel::kernels::simd {

/// How far ahead weights are fetched.
constexpr size_t fetch_distance = 8192;

/// Fetches a k-block and a group's scales and minima, which are at `ahead`, to be read later.
/// Processors that fetch by themselves do so too late where there are many products for a weight
/// (benchmarks/notebook.md). Past the end of a matrix it costs nothing and harms nothing.
template <PackedType type>
[[gnu::always_inline]] inline void fetch(const uint8_t* ahead) {
    constexpr size_t bytes = 64 * bits_of(type) + 64;
#pragma GCC unroll 9
    for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(ahead + i);
}

/// A group's scales of V::lanes rows of a tile.
template <class V>
typename V::F load_scales(const uint8_t* in, PackedLinear::Scale form) {
    switch (form) {
        case PackedLinear::Scale::e8m0:
            return V::load_e8m0(in);
        case PackedLinear::Scale::f16:
            return V::load_f16(in);
        case PackedLinear::Scale::f32:
            return V::load(reinterpret_cast<const float*>(in));
    }
    __builtin_unreachable();
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

template <class V>
void rms_norm(const float* x, const float* gamma, float epsilon, size_t k, float* out) {
    constexpr size_t L = V::lanes, S = V::independent_sums;
    typename V::F squares[S];
    unrolled<S>([&](auto s) PAGEWHEEL_INLINE { squares[s] = V::zero(); });
    const auto add = [&](auto s, size_t i, auto lanes) PAGEWHEEL_INLINE {
        const auto v = V::load(x + i, lanes);
        squares[s] = V::fma(v, v, squares[s]);
    };
    size_t first = 0;
    for (; first + S * L <= k; first += S * L)
        unrolled<S>([&](auto s) PAGEWHEEL_INLINE { add(s, first + s * L, AllLanes()); });
    unrolled<S>([&](auto s) PAGEWHEEL_INLINE {
        const size_t i = first + s * L;
        if (i < k) add(s, i, V::mask(k - i));
    });
    auto sum = squares[0];
    for (size_t i = 1; i < S; ++i) sum = V::add(sum, squares[i]);
    const float mean = V::reduce_sum(sum) / float(k);
    const auto factor = V::set(1.0f / __builtin_sqrtf(mean + epsilon));
    for_vectors<V>(k, [&](size_t i, auto lanes) PAGEWHEEL_INLINE {
        const auto v = V::mul(V::load(x + i, lanes), factor);
        V::store(out + i, V::mul(V::load(gamma + i, lanes), v), lanes);
    });
}

template <class V>
void swiglu(float* gate, const float* up, size_t n) {
    for_vectors<V>(n, [&](size_t i, auto lanes) PAGEWHEEL_INLINE {
        const auto g = V::load(gate + i, lanes);
        V::store(gate + i, V::mul(gated<V>(g, g), V::load(up + i, lanes)), lanes);
    });
}

template <class V>
void gate(const float* x, const float* gate, size_t n, float* out) {
    for_vectors<V>(n, [&](size_t i, auto lanes) PAGEWHEEL_INLINE {
        V::store(out + i, gated<V>(V::load(x + i, lanes), V::load(gate + i, lanes)), lanes);
    });
}

/// Four rows at a time share what they load of x.
template <class V>
void inner_products(const float* x, const float* rows, size_t k, size_t count, float* out) {
    constexpr size_t most = 4;
    for (size_t first = 0; first < count; first += most) {
        typename V::F sums[most];
        const float* in[most];
        unrolled<most>([&](auto r) PAGEWHEEL_INLINE {
            sums[r] = V::zero();
            in[r] = rows + (first + r < count ? first + r : first) * k;
        });
        for_vectors<V>(k, [&](size_t i, auto lanes) PAGEWHEEL_INLINE {
            const auto v = V::load(x + i, lanes);
            unrolled<most>([&](auto r) PAGEWHEEL_INLINE {
                sums[r] = V::fma(V::load(in[r] + i, lanes), v, sums[r]);
            });
        });
        unrolled<most>([&](auto r) PAGEWHEEL_INLINE {
            if (first + r < count) out[first + r] = V::reduce_sum(sums[r]);
        });
    }
}

template <class V>
void rotate(float* head, size_t size, const float* cos, const float* sin) {
    const size_t half = size / 2;
    for_vectors<V>(half, [&](size_t i, auto lanes) PAGEWHEEL_INLINE {
        const auto a = V::load(head + i, lanes), b = V::load(head + half + i, lanes);
        const auto first = V::mul(b, V::load(sin + i, lanes));
        const auto second = V::mul(a, V::load(sin + half + i, lanes));
        V::store(head + i, V::fms(a, V::load(cos + i, lanes), first), lanes);
        V::store(head + half + i, V::fma(b, V::load(cos + half + i, lanes), second), lanes);
    });
}

/// Unpacks k-blocks [begin, end) of a tile to bf16 (Bf16Kernels::unpack): Group(weights, in) is
/// made of each group's scales and offsets, and unpack(in, out) called for its k-blocks.
///
/// Unlike the kernels that stream weights, who calls this stops reading while rows are multiplied,
/// and the processor's own fetching starts anew: weights that lie in no cache are unpacked at twice
/// the speed with what comes some k-blocks later fetched here (23 G a second instead of 12 on a
/// Zen 5 core).
template <class Group>
void unpack_k_blocks(const PackedLinear& weights, size_t tile, size_t begin, size_t end,
                     uint16_t* out) {
    const size_t per_group = weights.k_blocks_per_group(), block_bytes = weights.k_block_bytes();
    const size_t head_bytes = weights.scale_bytes() + weights.offset_bytes();
    for (size_t c = begin; c < end;) {
        const size_t group = per_group == 1 ? c : c / per_group;  // a division takes its time
        const size_t first = group * per_group;
        const size_t stop = first + per_group < end ? first + per_group : end;
        const uint8_t* head = weights.tile(tile) + group * head_bytes + first * block_bytes;
        const Group unpacker(weights, head);
        const uint8_t* in = head + head_bytes + (c - first) * block_bytes;
        for (; c < stop; ++c, in += block_bytes, out += tile_block) {
            for (size_t i = 0; i < head_bytes + block_bytes; i += 64)
                __builtin_prefetch(in + 2048 + i);
            unpacker.unpack(in, out);
        }
    }
}

}  // namespace pagewheel::kernels::simd
