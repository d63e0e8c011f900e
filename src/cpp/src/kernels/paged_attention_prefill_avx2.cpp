// Prompt chunks with AVX2, FMA and F16C, in f32 arithmetic.
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/paged_attention_prefill_kernel.hpp"
#include "kernels/simd_avx2.hpp"

namespace pagewheel::kernels {
namespace {

struct Avx2 {
    static constexpr size_t lanes = 8, columns = 2;
    using F = __m256;
    using I = __m256i;
    using Mask = __m256i;

    static float float_of(uint16_t half) {
        return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half)));
    }
    static F zero() { return _mm256_setzero_ps(); }
    static F set(float x) { return _mm256_set1_ps(x); }
    static F iota() { return _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7); }
    static F load(const float* p) { return _mm256_loadu_ps(p); }
    static F load(const float* p, Mask m) { return _mm256_maskload_ps(p, m); }
    static void store(float* p, F x) { _mm256_storeu_ps(p, x); }
    static void store(float* p, F x, Mask m) { _mm256_maskstore_ps(p, m, x); }
    static I load_words(const uint32_t* p) {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    }
    static I load_words(const uint32_t* p, Mask m) {
        return _mm256_maskload_epi32(reinterpret_cast<const int*>(p), m);
    }

    /// Lanes [0, n), lanes [low, high).
    static Mask mask(size_t n) {
        return _mm256_cmpgt_epi32(_mm256_set1_epi32(n < 8 ? static_cast<int>(n) : 8),
                                  _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    }
    static Mask mask(size_t low, size_t high) { return _mm256_andnot_si256(mask(low), mask(high)); }
    static F select(Mask m, F a, F b) { return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(m)); }

    static F add(F a, F b) { return _mm256_add_ps(a, b); }
    static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
    static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
    static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
    static F fnma(F a, F b, F c) { return _mm256_fnmadd_ps(a, b, c); }
    static F div(F a, F b) { return _mm256_div_ps(a, b); }
    static F max(F a, F b) { return _mm256_max_ps(a, b); }
    static F min(F a, F b) { return _mm256_min_ps(a, b); }
    static float sum(F x) { return horizontal_sum_avx2(x); }
    static float largest(F x) {
        __m128 m = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
        m = _mm_max_ps(m, _mm_movehl_ps(m, m));
        return _mm_cvtss_f32(_mm_max_ss(m, _mm_shuffle_ps(m, m, 1)));
    }
    static float first(F x) { return _mm256_cvtss_f32(x); }

    /// 2^x for x <= 0, relative error below 3e-7; 0 where it vanishes.
    static F exp2(F x) {
        const F low = set(-126);
        const F n = _mm256_round_ps(max(x, low), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        const F r = sub(max(x, low), n);
        F p = set(exp2_coefficients[5]);
        for (int i = 4; i >= 0; --i) p = fma(p, r, set(exp2_coefficients[i]));
        const I bits = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
        const F scaled = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), bits));
        return _mm256_and_ps(scaled, _mm256_cmp_ps(x, low, _CMP_NLT_UQ));
    }

    template <int N>
    static I shift_right(I x) {
        return _mm256_srli_epi32(x, N);
    }
    template <int N>
    static I shift_left(I x) {
        return _mm256_slli_epi32(x, N);
    }
    static I keep(I x, uint32_t bits) {
        return _mm256_and_si256(x, _mm256_set1_epi32(static_cast<int>(bits)));
    }
    static F as_float(I x) { return _mm256_castsi256_ps(x); }
    static F to_float(I x) { return _mm256_cvtepi32_ps(x); }
    static F half_to_float(I x) {
        const I low = keep(x, 0xffff);
        return _mm256_cvtph_ps(
            _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1)));
    }
};

template <CacheFormat Format>
using Products = FloatProducts<Avx2, Format>;

}  // namespace

const PrefillVariant& prefill_avx2() {
    static constexpr PrefillVariant variant = prefill_variant<Avx2, Products>();
    return variant;
}

}  // namespace pagewheel::kernels
#endif
