#if defined(__x86_64__)
#include <cmath>

#include "kernels/logits.hpp"
#include "kernels/simd_avx2.hpp"

namespace pagewheel::kernels {

size_t argmax_avx2(const float* x, size_t n) {
    if (n < 16) return argmax_scalar(x, n);
    // The maximum first, then its first position: two loads a value cost less than carrying indices
    // along. The maximum waits for the one before, so looking for NaN besides costs no time.
    __m256 best = _mm256_set1_ps(-__builtin_inff()), unordered = _mm256_setzero_ps();
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256 value = _mm256_loadu_ps(x + i);
        best = _mm256_max_ps(value, best);
        unordered = _mm256_or_ps(unordered, _mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    }
    float lanes[8];
    _mm256_storeu_ps(lanes, best);
    float maximum = lanes[argmax_scalar(lanes, 8)];
    bool has_nan = _mm256_movemask_ps(unordered) != 0;
    for (; i < n; ++i) {
        if (x[i] > maximum) maximum = x[i];
        has_nan |= std::isnan(x[i]);
    }
    if (has_nan) return argmax_scalar(x, n);

    const __m256 wanted = _mm256_set1_ps(maximum);
    for (i = 0; i + 8 <= n; i += 8) {
        const __m256 equal = _mm256_cmp_ps(_mm256_loadu_ps(x + i), wanted, _CMP_EQ_OQ);
        if (const int mask = _mm256_movemask_ps(equal)) return i + __builtin_ctz(mask);
    }
    while (i < n && x[i] != maximum) ++i;
    return i;
}

double sum_exp_avx2(const float* x, size_t n, float shift, float scale) {
    const __m256 shifts = _mm256_set1_ps(shift), scales = _mm256_set1_ps(scale);
    const __m256 lowest = _mm256_set1_ps(-87.0f);
    double sum = 0;
    size_t i = 0;
    while (i + 8 <= n) {
        // Partial sums of at most 4096 values keep float accumulation exact enough.
        const size_t end = n - i > 4096 ? i + 4096 : n;
        __m256 partial = _mm256_setzero_ps();
        for (; i + 8 <= end; i += 8) {
            const __m256 e = _mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(x + i), shifts), scales);
            const __m256 counts = _mm256_cmp_ps(e, lowest, _CMP_GT_OQ);
            partial =
                _mm256_add_ps(partial, _mm256_and_ps(counts, exp_avx2(_mm256_max_ps(e, lowest))));
        }
        sum += horizontal_sum_avx2(partial);
    }
    return sum + sum_exp_scalar(x + i, n - i, shift, scale);
}

size_t find_above_avx2(const float* x, size_t begin, size_t n, float threshold) {
    const __m256 limit = _mm256_set1_ps(threshold);
    for (; begin + 8 <= n; begin += 8) {
        const __m256 above = _mm256_cmp_ps(_mm256_loadu_ps(x + begin), limit, _CMP_GT_OQ);
        if (const int mask = _mm256_movemask_ps(above)) return begin + __builtin_ctz(mask);
    }
    return find_above_scalar(x, begin, n, threshold);
}

}  // namespace pagewheel::kernels
#endif
