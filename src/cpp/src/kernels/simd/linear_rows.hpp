// What linear layers do to rows of floats (LinearKernels), for any V (simd/vectors.hpp).
#pragma once

#include "kernels/simd/math.hpp"

namespace pagewheel::kernels::simd {

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
    const auto one = V::set(1), zero = V::zero(), lowest = V::set(-87), highest = V::set(87);
    for_vectors<V>(n, [&](size_t i, auto lanes) PAGEWHEEL_INLINE {
        const auto g = V::load(gate + i, lanes);
        const auto bounded = V::min(V::max(V::sub(zero, g), lowest), highest);
        const auto silu = V::approximate_div(g, V::add(one, exp<V>(bounded)));
        V::store(gate + i, V::mul(silu, V::load(up + i, lanes)), lanes);
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
void rotate(float* x, size_t heads, size_t size, const float* cos, const float* sin) {
    const size_t half = size / 2;
    for (float* head = x; head != x + heads * size; head += size)
        for_vectors<V>(half, [&](size_t i, auto lanes) PAGEWHEEL_INLINE {
            const auto a = V::load(head + i, lanes), b = V::load(head + half + i, lanes);
            const auto first = V::mul(b, V::load(sin + i, lanes));
            const auto second = V::mul(a, V::load(sin + half + i, lanes));
            V::store(head + i, V::fms(a, V::load(cos + i, lanes), first), lanes);
            V::store(head + half + i, V::fma(b, V::load(cos + half + i, lanes), second), lanes);
        });
}

}  // namespace pagewheel::kernels::simd
