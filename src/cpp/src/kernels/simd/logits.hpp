// Arithmetic over one row of logits (kernels/logits.hpp), for any V (simd/vectors.hpp).
#pragma once

#include "kernels/logits.hpp"
#include "kernels/simd/math.hpp"

namespace pagewheel::kernels::simd {

template <class V>
size_t argmax(const float* x, size_t n) {
    constexpr size_t L = V::lanes;
    if (n < 2 * L) return argmax_scalar(x, n);
    // The maximum first, then its first position: two loads a value cost less than carrying indices
    // along. The maximum waits for the one before, so looking for NaN besides costs no time.
    auto best = V::set(-__builtin_inff());
    auto unordered = V::mask(0);
    size_t i = 0;
    for (; i + L <= n; i += L) {
        const auto value = V::load(x + i);
        best = V::max(value, best);
        unordered = V::either(unordered, V::is_nan(value));
    }
    float maximum = V::largest(best);
    bool has_nan = V::bits(unordered) != 0;
    for (; i < n; ++i) {
        if (x[i] > maximum) maximum = x[i];
        has_nan |= __builtin_isnan(x[i]);
    }
    if (has_nan) return argmax_scalar(x, n);

    const auto wanted = V::set(maximum);
    for (i = 0; i + L <= n; i += L)
        if (const unsigned equal = V::bits(V::equal(V::load(x + i), wanted)))
            return i + size_t(__builtin_ctz(equal));
    while (i < n && x[i] != maximum) ++i;
    return i;
}

template <class V>
double sum_exp(const float* x, size_t n, float shift, float scale) {
    // Partial sums of so few values keep float accumulation exact enough.
    constexpr size_t L = V::lanes, most = 512 * L;
    const auto shifts = V::set(shift), scales = V::set(scale), lowest = V::set(-87.0f);
    double sum = 0;
    size_t i = 0;
    while (i + L <= n) {
        const size_t end = n - i > most ? i + most : n;
        auto partial = V::zero();
        for (; i + L <= end; i += L) {
            const auto e = V::mul(V::sub(V::load(x + i), shifts), scales);
            partial =
                V::add(partial, V::zero_unless(V::greater(e, lowest), exp<V>(V::max(e, lowest))));
        }
        sum += V::sum(partial);
    }
    return sum + sum_exp_scalar(x + i, n - i, shift, scale);
}

template <class V>
size_t find_above(const float* x, size_t begin, size_t n, float threshold) {
    const auto limit = V::set(threshold);
    for (; begin + V::lanes <= n; begin += V::lanes)
        if (const unsigned above = V::bits(V::greater(V::load(x + begin), limit)))
            return begin + size_t(__builtin_ctz(above));
    return find_above_scalar(x, begin, n, threshold);
}

template <class V>
LogitsKernels logits_kernels() {
    return {argmax<V>, sum_exp<V>, find_above<V>};
}

}  // namespace pagewheel::kernels::simd
