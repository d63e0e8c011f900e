#if defined(__x86_64__)
#include <cmath>

#include "kernels/logits.hpp"
#include "kernels/simd_avx512.hpp"

namespace pagewheel::kernels {

size_t argmax_avx512(const float* x, size_t n) {
    if (n < 32) return argmax_scalar(x, n);
    // As the AVX2 variant: the maximum, then its first position.
    __m512 best = _mm512_set1_ps(-__builtin_inff());
    __mmask16 unordered = 0;
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m512 value = _mm512_loadu_ps(x + i);
        best = _mm512_max_ps(value, best);
        unordered |= _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    }
    float maximum = _mm512_reduce_max_ps(best);
    bool has_nan = unordered != 0;
    for (; i < n; ++i) {
        if (x[i] > maximum) maximum = x[i];
        has_nan |= std::isnan(x[i]);
    }
    if (has_nan) return argmax_scalar(x, n);

    const __m512 wanted = _mm512_set1_ps(maximum);
    for (i = 0; i + 16 <= n; i += 16) {
        const __mmask16 mask = _mm512_cmp_ps_mask(_mm512_loadu_ps(x + i), wanted, _CMP_EQ_OQ);
        if (mask) return i + __builtin_ctz(mask);
    }
    while (i < n && x[i] != maximum) ++i;
    return i;
}

double sum_exp_avx512(const float* x, size_t n, float shift, float scale) {
    const __m512 shifts = _mm512_set1_ps(shift), scales = _mm512_set1_ps(scale);
    const __m512 lowest = _mm512_set1_ps(-87.0f);
    double sum = 0;
    size_t i = 0;
    while (i + 16 <= n) {
        const size_t end = n - i > 8192 ? i + 8192 : n;
        __m512 partial = _mm512_setzero_ps();
        for (; i + 16 <= end; i += 16) {
            const __m512 e = _mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(x + i), shifts), scales);
            const __mmask16 counts = _mm512_cmp_ps_mask(e, lowest, _CMP_GT_OQ);
            partial =
                _mm512_mask_add_ps(partial, counts, partial, exp_avx512(_mm512_max_ps(e, lowest)));
        }
        sum += _mm512_reduce_add_ps(partial);
    }
    return sum + sum_exp_scalar(x + i, n - i, shift, scale);
}

size_t find_above_avx512(const float* x, size_t begin, size_t n, float threshold) {
    const __m512 limit = _mm512_set1_ps(threshold);
    for (; begin + 16 <= n; begin += 16) {
        const __mmask16 above = _mm512_cmp_ps_mask(_mm512_loadu_ps(x + begin), limit, _CMP_GT_OQ);
        if (above) return begin + __builtin_ctz(above);
    }
    return find_above_scalar(x, begin, n, threshold);
}

}  // namespace pagewheel::kernels
#endif
