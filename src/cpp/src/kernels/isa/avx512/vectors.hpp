// Vectors of AVX-512 (simd/vectors.hpp).
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/isa/f16c.hpp"
#include "kernels/simd/math.hpp"

namespace pagewheel::kernels::avx512 {
namespace {

struct Avx512 : F16c {
    static constexpr size_t lanes = 16;
    static constexpr size_t columns = 4;  // vectors of one row that prefill kernels sum at once
    static constexpr size_t rows_at_once = 6;          // whose accumulators fit decode's registers
    static constexpr size_t independent_sums = 2;      // of one row's squares
    static constexpr bool scales_by_any_power = true;  // see scale()
    using F = __m512;
    using I = __m512i;
    using Mask = __mmask16;

    static F zero() { return _mm512_setzero_ps(); }
    static F set(float x) { return _mm512_set1_ps(x); }
    static F iota() { return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); }
    static F load(const float* p) { return _mm512_loadu_ps(p); }
    static F load(const float* p, simd::AllLanes) { return load(p); }
    static F load(const float* p, Mask m) { return _mm512_maskz_loadu_ps(m, p); }
    static void store(float* p, F x) { _mm512_storeu_ps(p, x); }
    static void store(float* p, F x, simd::AllLanes) { store(p, x); }
    static void store(float* p, F x, Mask m) { _mm512_mask_storeu_ps(p, m, x); }
    /// The lanes of the mask side by side; what follows them in memory is overwritten. Compressing
    /// into a register first: into memory it takes over a hundred cycles on some processors.
    static void compress_store(float* p, Mask m, F x) { store(p, _mm512_maskz_compress_ps(m, x)); }
    static void compress_store(uint32_t* p, Mask m, I x) {
        _mm512_storeu_si512(p, _mm512_maskz_compress_epi32(m, x));
    }
    static I load_words(const uint32_t* p) { return _mm512_loadu_si512(p); }
    static I load_words(const uint32_t* p, Mask m) { return _mm512_maskz_loadu_epi32(m, p); }
    static F load_f16(const uint8_t* p) {
        return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    }
    /// Powers of two of these exponents; 0 is 0.
    static F load_e8m0(const uint8_t* p) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
        return as_float(_mm512_slli_epi32(_mm512_cvtepu8_epi32(bytes), 23));
    }
    static F load_u8(const uint8_t* p) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
        return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
    }

    /// Lanes [0, n), lanes [low, high).
    static Mask mask(size_t n) { return n < 16 ? static_cast<Mask>((1u << n) - 1) : Mask(0xffff); }
    static Mask mask(size_t low, size_t high) { return static_cast<Mask>(mask(high) & ~mask(low)); }
    static F select(Mask m, F a, F b) { return _mm512_mask_blend_ps(m, b, a); }

    /// x, or 0 where the mask is not.
    static F zero_unless(Mask m, F x) { return _mm512_maskz_mov_ps(m, x); }
    static Mask mask_or(Mask a, Mask b) { return static_cast<Mask>(a | b); }
    static Mask mask_and(Mask a, Mask b) { return static_cast<Mask>(a & b); }
    /// The lanes whose bits are set.
    static Mask mask_of_bits(uint32_t bits) { return static_cast<Mask>(bits); }
    /// Lane i as bit i.
    static unsigned mask_bits(Mask m) { return m; }
    static Mask equal(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
    static Mask greater(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
    static Mask greater_equal(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
    /// Whether either is NaN.
    static Mask is_nan(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q); }

    static F add(F a, F b) { return _mm512_add_ps(a, b); }
    static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
    static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
    static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
    static F fms(F a, F b, F c) { return _mm512_fmsub_ps(a, b, c); }
    static F fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }
    /// sum += a * b
    [[gnu::always_inline]] static void add_product(F& sum, F a, F b) { sum = fma(a, b, sum); }
    static F div(F a, F b) { return _mm512_div_ps(a, b); }
    /// a / b, to a few units of the last place. A division takes as long as eight of what this is:
    /// an estimate and one Newton step.
    static F approximate_div(F a, F b) {
        const F estimate = _mm512_rcp14_ps(b);
        return mul(a, mul(estimate, fnma(b, estimate, set(2))));
    }
    static F max(F a, F b) { return _mm512_max_ps(a, b); }
    static F min(F a, F b) { return _mm512_min_ps(a, b); }
    static F abs(F a) { return _mm512_abs_ps(a); }
    /// To the nearest whole number.
    static F round(F a) {
        return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    }
    /// a 2^n for a whole n.
    static F scale(F a, F n) { return _mm512_scalef_ps(a, n); }
    static F exp2(F x) { return simd::exp2<Avx512>(x); }
    static float reduce_sum(F x) { return _mm512_reduce_add_ps(x); }
    static float reduce_max(F x) { return _mm512_reduce_max_ps(x); }
    static float reduce_min(F x) { return _mm512_reduce_min_ps(x); }
    /// out[r] = reduce_sum(x[r]) or reduce_max(x[r]); out [R, rounded up to 4].
    template <size_t R>
    static void reduce_sums(const F (&x)[R], float* out) {
        reduce_by_fours(x, out, add);
    }
    template <size_t R>
    static void reduce_maxima(const F (&x)[R], float* out) {
        reduce_by_fours(x, out, max);
    }

    template <int N>
    static I shift_right(I x) {
        return _mm512_srli_epi32(x, N);
    }
    template <int N>
    static I shift_left(I x) {
        return _mm512_slli_epi32(x, N);
    }
    static I add_words(I a, I b) { return _mm512_add_epi32(a, b); }
    static I iota_words() {
        return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    }
    static I set_words(uint32_t x) { return _mm512_set1_epi32(static_cast<int>(x)); }
    static I bit_and(I x, uint32_t bits) {
        return _mm512_and_si512(x, _mm512_set1_epi32(static_cast<int>(bits)));
    }
    static F as_float(I x) { return _mm512_castsi512_ps(x); }
    static I as_words(F x) { return _mm512_castps_si512(x); }
    static F to_float(I x) { return _mm512_cvtepi32_ps(x); }
    /// The low 16 bits of each word.
    static __m256i low_halves(I x) { return _mm512_cvtepi32_epi16(x); }
    /// The four bytes at p in every lane.
    [[gnu::always_inline]] static I broadcast_word(const void* p) {
        int32_t word;
        std::memcpy(&word, p, sizeof word);
        return _mm512_set1_epi32(word);
    }
    static F half_to_float(I x) { return _mm512_cvtph_ps(low_halves(x)); }

    /// (x0, x0, x1, x1, ...), (x1, x0, x3, x2, ...), a b - c in even and a b + c in odd lanes.
    static F twice(F x) {
        return _mm512_permutexvar_ps(
            _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7), x);
    }
    static F swapped(F x) { return _mm512_permute_ps(x, 0xb1); }
    static F fmaddsub(F a, F b, F c) { return _mm512_fmaddsub_ps(a, b, c); }

    /// out[i * stride + j] = rows[j][at + i] for i, j in [0, lanes), which may overlap.
    static void transpose(const float* const* rows, size_t at, float* out, size_t stride) {
        F x[16], y[16];
        for (size_t j = 0; j < 16; ++j) x[j] = load(rows[j] + at);
        for (size_t j = 0; j < 16; j += 4) {
            const F a = _mm512_unpacklo_ps(x[j], x[j + 1]), b = _mm512_unpackhi_ps(x[j], x[j + 1]);
            const F c = _mm512_unpacklo_ps(x[j + 2], x[j + 3]);
            const F d = _mm512_unpackhi_ps(x[j + 2], x[j + 3]);
            y[j] = _mm512_shuffle_ps(a, c, 0x44), y[j + 1] = _mm512_shuffle_ps(a, c, 0xee);
            y[j + 2] = _mm512_shuffle_ps(b, d, 0x44), y[j + 3] = _mm512_shuffle_ps(b, d, 0xee);
        }
        // Column i of 4 rows now is 128-bit lane i / 4 of y[4 (row / 4) + i % 4].
        for (size_t i = 0; i < 4; ++i) {
            const F a = _mm512_shuffle_f32x4(y[i], y[4 + i], 0x88);
            const F b = _mm512_shuffle_f32x4(y[i], y[4 + i], 0xdd);
            const F c = _mm512_shuffle_f32x4(y[8 + i], y[12 + i], 0x88);
            const F d = _mm512_shuffle_f32x4(y[8 + i], y[12 + i], 0xdd);
            store(out + i * stride, _mm512_shuffle_f32x4(a, c, 0x88));
            store(out + (4 + i) * stride, _mm512_shuffle_f32x4(b, d, 0x88));
            store(out + (8 + i) * stride, _mm512_shuffle_f32x4(a, c, 0xdd));
            store(out + (12 + i) * stride, _mm512_shuffle_f32x4(b, d, 0xdd));
        }
    }

    /// Vectors of one row that decode kernels sum at once, with R rows.
    template <size_t R, size_t Nibbles>
    static constexpr size_t value_vectors = Nibbles == 2 ? 1
                                            : R <= 3     ? 4
                                                         : 2;

    /// Lanes [0, n) of whole numbers from 0 to 255, as bytes.
    static void store_bytes(uint8_t* p, F x, size_t n) {
        const __m128i bytes = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x));
        // A masked store would not be forwarded to the loads that follow.
        if (n >= 16)
            _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
        else
            _mm_mask_storeu_epi8(p, mask(n), bytes);
    }
    /// Lanes [0, n).
    static void store_halves(uint16_t* p, __m256i halves, size_t n) {
        if (n >= 16)
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), halves);
        else
            _mm256_mask_storeu_epi16(p, mask(n), halves);
    }
    static __m256i to_f16(F x) { return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT); }

    // ---- Pairs of 16 bits in a word

    /// The low and the high two bytes of each word as 16-bit integers.
    [[gnu::always_inline]] static I low_bytes(I words) {
        return _mm512_shuffle_epi8(
            words, _mm512_broadcast_i32x4(
                       _mm_setr_epi8(0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13, -1)));
    }
    [[gnu::always_inline]] static I high_bytes(I words) {
        return _mm512_shuffle_epi8(
            words, _mm512_broadcast_i32x4(
                       _mm_setr_epi8(2, -1, 3, -1, 6, -1, 7, -1, 10, -1, 11, -1, 14, -1, 15, -1)));
    }

    /// Each lane has the upper half of `first` and, above it, that of `second`.
    static I upper_halves(F first, F second) {
        constexpr __mmask32 upper = 0xaaaaaaaa;
        return _mm512_mask_blend_epi16(upper, shift_right<16>(as_words(first)), as_words(second));
    }
    static F bf16_to_float(__m256i halves) {
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
    }

    // The instructions of AVX512_BF16 are assembly, so that the compiler needs no option for them;
    // who calls asks the processor for them.

    [[gnu::always_inline]] static __m256i to_bf16(F x) {
        __m256i halves;
        asm("vcvtneps2bf16 %1, %0" : "=v"(halves) : "v"(x));
        return halves;
    }
    /// 16 of `low` in the low half, 16 of `high` in the high one.
    [[gnu::always_inline]] static I to_bf16(F low, F high) {
        I halves;
        asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(halves) : "v"(low), "v"(high));
        return halves;
    }
    /// sum += products of two pairs of bf16 per lane.
    [[gnu::always_inline]] static void add_bf16_products(F& sum, I a, I b) {
        asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    }

private:
    /// Four vectors take as many instructions as one and a half by themselves.
    template <size_t R, class Combine>
    [[gnu::always_inline]] static void reduce_by_fours(const F (&x)[R], float* out,
                                                       const Combine& combine) {
        // Halves of two vectors, then quarters of four, side by side.
        const auto halved = [&](F a, F b) PAGEWHEEL_INLINE {
            return combine(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
        };
        unrolled<(R + 3) / 4>([&](auto four) PAGEWHEEL_INLINE {
            constexpr size_t r = 4 * four, last = R - 1;
            const F ab = halved(x[r], x[r + 1 < R ? r + 1 : last]);
            const F cd = halved(x[r + 2 < R ? r + 2 : last], x[r + 3 < R ? r + 3 : last]);
            F all = combine(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
            all = combine(all, _mm512_permute_ps(all, 0x4e));
            all = combine(all, _mm512_permute_ps(all, 0xb1));
            _mm_storeu_ps(out + r, _mm512_castps512_ps128(_mm512_maskz_compress_ps(0x1111, all)));
        });
    }
};

}  // namespace
}  // namespace pagewheel::kernels::avx512
