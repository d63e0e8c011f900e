// AVX-512 helpers that several kernels share. Include only from *_avx512.cpp.
#pragma once

#include <immintrin.h>

#include <initializer_list>

namespace pagewheel::kernels {

/// exp(x) per lane, relative error below 3e-7, for x in [-87, 88]; as exp_avx2.
inline __m512 exp_avx512(__m512 x) {
    const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504089f)),
                                          _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 p = _mm512_set1_ps(1.0f / 720);
    for (float c : {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f})
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(c));
    return _mm512_scalef_ps(p, n);
}

/// 2^x per lane, relative error below 3e-7, for any x up to 127: x = n + r and a polynomial of
/// degree 5 for 2^r (least relative error on [-1/2, 1/2]).
inline __m512 exp2_avx512(__m512 x) {
    const __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 r = _mm512_sub_ps(x, n);
    __m512 p = _mm512_set1_ps(0.00132764725f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.00967554189f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.0555071309f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.240221202f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.693146944f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.00000012f));
    return _mm512_scalef_ps(p, n);
}

/// One degree less: relative error below 3e-6, a tenth of what rounding to 15 bits adds.
inline __m512 exp2_short_avx512(__m512 x) {
    const __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 r = _mm512_sub_ps(x, n);
    __m512 p = _mm512_set1_ps(0.0095701013f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.05591786f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.24024744f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.6931218f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.9999993f));
    return _mm512_scalef_ps(p, n);
}

}  // namespace pagewheel::kernels
