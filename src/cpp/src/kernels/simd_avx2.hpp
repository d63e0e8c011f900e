// AVX2 helpers that several kernels share. Include only from *_avx2.cpp.
#pragma once

#include <immintrin.h>

#include <initializer_list>

namespace pagewheel::kernels {

/// exp(x) per lane, relative error below 3e-7, for x in [-87, 88]: x = n ln 2 + r, a degree 6
/// polynomial for exp(r), and 2^n put into the exponent bits.
inline __m256 exp_avx2(__m256 x) {
    const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504089f)),
                                     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    // ln 2 in two parts, so that r keeps its low bits.
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r);
    __m256 p = _mm256_set1_ps(1.0f / 720);
    for (float c : {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f})
        p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(c));
    const __m256i bits = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), bits));
}

/// 2^x per lane, relative error below 3e-7, for any x up to 127, 0 below -126; as exp2_avx512.
inline __m256 exp2_avx2(__m256 x) {
    const __m256 lowest = _mm256_set1_ps(-126);
    const __m256 counts = _mm256_cmp_ps(x, lowest, _CMP_GE_OQ);
    x = _mm256_max_ps(x, lowest);
    const __m256 n = _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m256 r = _mm256_sub_ps(x, n);
    __m256 p = _mm256_set1_ps(0.00132764725f);
    for (float c : {0.00967554189f, 0.0555071309f, 0.240221202f, 0.693146944f, 1.00000012f})
        p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(c));
    const __m256i bits = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    return _mm256_and_ps(counts,
                         _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), bits)));
}

inline float horizontal_sum_avx2(__m256 v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}

}  // namespace pagewheel::kernels
