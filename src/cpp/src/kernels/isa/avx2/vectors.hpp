// Vectors of AVX2, FMA and F16C (simd/vectors.hpp).
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/isa/f16c.hpp"
#include "kernels/simd/math.hpp"

namespace pagewheel::kernels::avx2 {
namespace {

/// For each set of lanes their numbers, side by side.
struct PackedLanes {
    uint8_t lanes[256][8] = {};

    constexpr PackedLanes() {
        for (unsigned bits = 0; bits < 256; ++bits)
            for (unsigned lane = 0, count = 0; lane < 8; ++lane)
                if ((bits >> lane) % 2 != 0) lanes[bits][count++] = static_cast<uint8_t>(lane);
    }
};
constexpr PackedLanes packed_lanes;

struct Avx2 : F16c {
    static constexpr size_t lanes = 8;
    static constexpr size_t columns = 2;  // vectors of one row that prefill kernels sum at once
    static constexpr size_t rows_at_once = 4;           // whose accumulators fit decode's registers
    static constexpr size_t independent_sums = 1;       // of one row's squares
    static constexpr bool scales_by_any_power = false;  // see scale()
    using F = __m256;
    using I = __m256i;
    using Mask = __m256i;

    static F zero() { return _mm256_setzero_ps(); }
    static F set(float x) { return _mm256_set1_ps(x); }
    static F iota() { return _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7); }
    static F load(const float* p) { return _mm256_loadu_ps(p); }
    static F load(const float* p, simd::AllLanes) { return load(p); }
    static F load(const float* p, Mask m) { return _mm256_maskload_ps(p, m); }
    static void store(float* p, F x) { _mm256_storeu_ps(p, x); }
    static void store(float* p, F x, simd::AllLanes) { store(p, x); }
    static void store(float* p, F x, Mask m) { _mm256_maskstore_ps(p, m, x); }
    /// The lanes of the mask side by side; what follows them in memory is overwritten.
    static void compress_store(float* p, Mask m, F x) {
        store(p, _mm256_permutevar8x32_ps(x, lanes_of(m)));
    }
    static void compress_store(uint32_t* p, Mask m, I x) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                            _mm256_permutevar8x32_epi32(x, lanes_of(m)));
    }
    static I lanes_of(Mask m) {
        const auto* lanes = reinterpret_cast<const __m128i*>(packed_lanes.lanes[mask_bits(m)]);
        return _mm256_cvtepu8_epi32(_mm_loadl_epi64(lanes));
    }
    static I load_words(const uint32_t* p) {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    }
    static I load_words(const uint32_t* p, Mask m) {
        return _mm256_maskload_epi32(reinterpret_cast<const int*>(p), m);
    }
    static F load_f16(const uint8_t* p) {
        return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    }
    /// Powers of two of these exponents; 0 is 0.
    static F load_e8m0(const uint8_t* p) {
        const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu8_epi32(bytes), 23));
    }
    static F load_u8(const uint8_t* p) {
        const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
        return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
    }

    /// Lanes [0, n), lanes [low, high).
    static Mask mask(size_t n) {
        return _mm256_cmpgt_epi32(_mm256_set1_epi32(n < 8 ? static_cast<int>(n) : 8),
                                  _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    }
    static Mask mask(size_t low, size_t high) { return _mm256_andnot_si256(mask(low), mask(high)); }
    static F select(Mask m, F a, F b) { return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(m)); }

    /// x, or 0 where the mask is not.
    static F zero_unless(Mask m, F x) { return _mm256_and_ps(_mm256_castsi256_ps(m), x); }
    static Mask mask_or(Mask a, Mask b) { return _mm256_or_si256(a, b); }
    static Mask mask_and(Mask a, Mask b) { return _mm256_and_si256(a, b); }
    /// The lanes whose bits are set.
    static Mask mask_of_bits(uint32_t bits) {
        const I each = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
        return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), each),
                                  each);
    }
    /// Lane i as bit i.
    static unsigned mask_bits(Mask m) {
        return static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(m)));
    }
    template <int Predicate>
    static Mask compare(F a, F b) {
        return _mm256_castps_si256(_mm256_cmp_ps(a, b, Predicate));
    }
    static Mask equal(F a, F b) { return compare<_CMP_EQ_OQ>(a, b); }
    static Mask greater(F a, F b) { return compare<_CMP_GT_OQ>(a, b); }
    static Mask greater_equal(F a, F b) { return compare<_CMP_GE_OQ>(a, b); }
    /// Whether either is NaN.
    static Mask is_nan(F a, F b) { return compare<_CMP_UNORD_Q>(a, b); }

    static F add(F a, F b) { return _mm256_add_ps(a, b); }
    static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
    static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
    static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
    static F fms(F a, F b, F c) { return _mm256_fmsub_ps(a, b, c); }
    static F fnma(F a, F b, F c) { return _mm256_fnmadd_ps(a, b, c); }
    /// sum += a * b
    [[gnu::always_inline]] static void add_product(F& sum, F a, F b) { sum = fma(a, b, sum); }
    static F div(F a, F b) { return _mm256_div_ps(a, b); }
    /// a / b, to a few units of the last place.
    static F approximate_div(F a, F b) { return div(a, b); }
    static F max(F a, F b) { return _mm256_max_ps(a, b); }
    static F min(F a, F b) { return _mm256_min_ps(a, b); }
    static F abs(F a) { return _mm256_andnot_ps(set(-0.0f), a); }
    /// To the nearest whole number.
    static F round(F a) {
        return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    }
    /// a 2^n for a whole n of [-126, 127] and a of [1/2, 2], by adding to the exponent bits.
    static F scale(F a, F n) {
        const I power = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
        return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), power));
    }
    static F exp2(F x) { return simd::exp2<Avx2>(x); }
    static float reduce_sum(F x) {
        __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
        s = _mm_add_ps(s, _mm_movehl_ps(s, s));
        return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
    }
    static float reduce_max(F x) {
        __m128 m = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
        m = _mm_max_ps(m, _mm_movehl_ps(m, m));
        return _mm_cvtss_f32(_mm_max_ss(m, _mm_shuffle_ps(m, m, 1)));
    }
    static float reduce_min(F x) { return -reduce_max(sub(set(-0.0f), x)); }
    /// out[r] = reduce_sum(x[r]) or reduce_max(x[r]).
    template <size_t R>
    static void reduce_sums(const F (&x)[R], float* out) {
        for (size_t r = 0; r < R; ++r) out[r] = reduce_sum(x[r]);
    }
    template <size_t R>
    static void reduce_maxima(const F (&x)[R], float* out) {
        for (size_t r = 0; r < R; ++r) out[r] = reduce_max(x[r]);
    }

    template <int N>
    static I shift_right(I x) {
        return _mm256_srli_epi32(x, N);
    }
    template <int N>
    static I shift_left(I x) {
        return _mm256_slli_epi32(x, N);
    }
    static I add_words(I a, I b) { return _mm256_add_epi32(a, b); }
    static I iota_words() { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }
    static I set_words(uint32_t x) { return _mm256_set1_epi32(static_cast<int>(x)); }
    static I bit_and(I x, uint32_t bits) {
        return _mm256_and_si256(x, _mm256_set1_epi32(static_cast<int>(bits)));
    }
    static F as_float(I x) { return _mm256_castsi256_ps(x); }
    static I as_words(F x) { return _mm256_castps_si256(x); }
    static F to_float(I x) { return _mm256_cvtepi32_ps(x); }
    /// The low 16 bits of each word.
    static __m128i low_halves(I x) {
        const I packed = _mm256_packus_epi32(bit_and(x, 0xffff), _mm256_setzero_si256());
        return _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 8));
    }
    static F half_to_float(I x) { return _mm256_cvtph_ps(low_halves(x)); }

    /// (x0, x0, x1, x1, ...), (x1, x0, x3, x2, ...), a b - c in even and a b + c in odd lanes.
    static F twice(F x) {
        return _mm256_permutevar8x32_ps(x, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
    }
    static F swapped(F x) { return _mm256_permute_ps(x, 0xb1); }
    static F fmaddsub(F a, F b, F c) { return _mm256_fmaddsub_ps(a, b, c); }

    /// out[i * stride + j] = rows[j][at + i] for i, j in [0, lanes).
    static void transpose(const float* const* rows, size_t at, float* out, size_t stride) {
        F y[8];
        for (size_t j = 0; j < 8; j += 4) {
            const F x0 = load(rows[j] + at), x1 = load(rows[j + 1] + at);
            const F x2 = load(rows[j + 2] + at), x3 = load(rows[j + 3] + at);
            const F a = _mm256_unpacklo_ps(x0, x1), b = _mm256_unpackhi_ps(x0, x1);
            const F c = _mm256_unpacklo_ps(x2, x3), d = _mm256_unpackhi_ps(x2, x3);
            y[j] = _mm256_shuffle_ps(a, c, 0x44), y[j + 1] = _mm256_shuffle_ps(a, c, 0xee);
            y[j + 2] = _mm256_shuffle_ps(b, d, 0x44), y[j + 3] = _mm256_shuffle_ps(b, d, 0xee);
        }
        for (size_t i = 0; i < 4; ++i) {
            store(out + i * stride, _mm256_permute2f128_ps(y[i], y[4 + i], 0x20));
            store(out + (4 + i) * stride, _mm256_permute2f128_ps(y[i], y[4 + i], 0x31));
        }
    }

    /// Vectors of one row that decode kernels sum at once, with R rows.
    template <size_t R, size_t Nibbles>
    static constexpr size_t value_vectors = Nibbles == 2 ? 1 : 2;

    /// Lanes [0, n) of whole numbers from 0 to 255, as bytes.
    static void store_bytes(uint8_t* p, F x, size_t n) {
        alignas(32) int32_t words[8];
        _mm256_store_si256(reinterpret_cast<__m256i*>(words), _mm256_cvtps_epi32(x));
        for (size_t i = 0; i < 8 && i < n; ++i) p[i] = static_cast<uint8_t>(words[i]);
    }
    /// Lanes [0, n).
    static void store_halves(uint16_t* p, __m128i halves, size_t n) {
        alignas(16) uint16_t all[8];
        _mm_store_si128(reinterpret_cast<__m128i*>(all), halves);
        std::memcpy(p, all, 2 * (n < 8 ? n : 8));
    }
    static __m128i to_f16(F x) { return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT); }
};

}  // namespace
}  // namespace pagewheel::kernels::avx2
