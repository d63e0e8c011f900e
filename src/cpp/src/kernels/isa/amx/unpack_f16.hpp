// Weights of 4 bits become bf16 by arithmetic in f16, which has twice the lanes of f32, for any
// class of vectors of f16. Included by files that are compiled for AVX-512.
#pragma once

#include <immintrin.h>

#include <algorithm>

#include "kernels/bf16_kernels.hpp"
#include "kernels/isa/avx512/kernels.hpp"
#include "kernels/isa/avx512/vectors.hpp"
#include "kernels/simd/linear.hpp"

namespace pagewheel::kernels::amx {
namespace {

#ifdef PAGEWHEEL_ASSEMBLES_FP16
/// 32 numbers of f16 in a register, by the instructions of AVX512_FP16. They are assembly, because
/// not every compiler knows them.
struct InstructionHalves {
    /// a - b
    static __m512i sub(__m512i a, __m512i b) {
        asm("vsubph %1, %0, %0" : "+v"(a) : "v"(b));
        return a;
    }
    /// a * b + c, cut off towards zero
    static __m512i fma(__m512i a, __m512i b, __m512i c) {
        asm("vfmadd213ph %{rz-sae%}, %2, %1, %0" : "+v"(a) : "v"(b), "v"(c));
        return a;
    }
};
#endif

/// Numbers of f16 computed in f64, of differences that are exact and products and sums of up to 53
/// bits.
struct ModelHalves {
    static __m512i sub(__m512i a, __m512i b) {
        return each(a, b, b, [](__m512d x, __m512d y, __m512d) { return _mm512_sub_pd(x, y); });
    }
    static __m512i fma(__m512i a, __m512i b, __m512i c) {
        return each(a, b, c,
                    [](__m512d x, __m512d y, __m512d z) { return _mm512_fmadd_pd(x, y, z); });
    }

private:
    template <class Operation>
    static __m512i each(__m512i a, __m512i b, __m512i c, const Operation& operation) {
        alignas(64) uint16_t x[32], y[32], z[32];
        _mm512_store_si512(x, a);
        _mm512_store_si512(y, b);
        _mm512_store_si512(z, c);
        for (size_t i = 0; i < 32; i += 8) {
            const __m128i rounded = to_f16(operation(to_f64(x + i), to_f64(y + i), to_f64(z + i)));
            _mm_store_si128(reinterpret_cast<__m128i*>(x + i), rounded);
        }
        return _mm512_load_si512(x);
    }
    static __m512d to_f64(const uint16_t* halves) {
        return _mm512_cvtps_pd(
            _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(halves))));
    }
    /// Towards zero, where cutting twice is as good as once.
    static __m128i to_f16(__m512d x) {
        return _mm256_cvtps_ph(_mm512_cvt_roundpd_ps(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC),
                               _MM_FROUND_TO_ZERO);
    }
};

/// 16 numbers twice each, side by side: an output's pair along k.
__m512i twice_each(__m256i words) {
    const __m512i wide = _mm512_cvtepu16_epi32(words);
    return _mm512_or_si512(wide, _mm512_slli_epi32(wide, 16));
}

/// Words whose bits, as f16, are 1024 + the word.
__m512i from_1024(__m512i words) {
    return _mm512_or_si512(words, _mm512_set1_epi16(0x6400));
}

/// What a group's values are multiplied with: 256 w = (value - zero point) * scale + minimum. The
/// high nibbles' values come 16 times as large, and so do their zero points.
template <class Halves>
struct HalfGroup {
    __m512i zeros, zeros_16, scales, scales_16, minima;

    HalfGroup(const PackedLinear& weights, const uint8_t* in) {
        const auto words = [](const uint8_t* from) {
            return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
        };
        const __m512i scale = twice_each(words(in)), none = _mm512_setzero_si512();
        const uint8_t* offsets = in + weights.scale_bytes();
        __m512i zero = none, minimum = none;
        if (weights.offset() == PackedLinear::Offset::u8_zero_point)
            zero = twice_each(
                _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(offsets))));
        else if (weights.offset() == PackedLinear::Offset::f16_minimum)
            minimum = twice_each(words(offsets));
        else
            zero = _mm512_set1_epi16(short(weights.common_zero_point()));
        constexpr short f16_256 = 0x5c00, f16_16 = 0x4c00;
        zeros = from_1024(zero);
        zeros_16 = from_1024(_mm512_slli_epi16(zero, 4));
        scales = Halves::fma(scale, _mm512_set1_epi16(f16_256), none);
        scales_16 = Halves::fma(scale, _mm512_set1_epi16(f16_16), none);
        minima = Halves::fma(minimum, _mm512_set1_epi16(f16_256), none);
    }

    /// A pair along k of all outputs: the bits `nibble` of words.
    void store(__m512i words, short nibble, __m512i zero, __m512i scale, uint16_t* out) const {
        // (words & nibble) | 0x6400
        const __m512i value = _mm512_ternarylogic_epi32(words, _mm512_set1_epi16(nibble),
                                                        _mm512_set1_epi16(0x6400), 0xea);
        const __m512i half = Halves::fma(Halves::sub(value, zero), scale, minima);
        // Half of bf16's last digit is added, and three digits are cut off: as the sum was cut off
        // too, that is to nearest. Then the exponent's bits are where bf16 has them. The bias of
        // f16 and the factor of 256 are 23, bf16's bias is 127.
        const __m512i cut =
            _mm512_and_si512(_mm512_srai_epi16(_mm512_add_epi16(half, _mm512_set1_epi16(4)), 3),
                             _mm512_set1_epi16(short(0x8fff)));
        const __mmask32 normal = _mm512_test_epi16_mask(cut, _mm512_set1_epi16(0x0f80));
        _mm512_storeu_si512(
            out, _mm512_maskz_add_epi16(normal, cut, _mm512_set1_epi16((127 - 23) << 7)));
    }

    /// A k-block.
    void unpack(const uint8_t* in, uint16_t* out) const {
        constexpr size_t pair = 2 * PackedLinear::tile_rows;
        for (size_t j = 0; j < 4; ++j) {
            const __m512i loaded = _mm512_loadu_si512(in + 64 * j);
            const __m512i a = avx512::Avx512::low_bytes(loaded);
            const __m512i b = avx512::Avx512::high_bytes(loaded);
            store(a, 0x000f, zeros, scales, out + 2 * j * pair);
            store(b, 0x000f, zeros, scales, out + (2 * j + 1) * pair);
            store(a, 0x00f0, zeros_16, scales_16, out + (8 + 2 * j) * pair);
            store(b, 0x00f0, zeros_16, scales_16, out + (9 + 2 * j) * pair);
        }
    }
};

/// Bf16Kernels::unpack. Weights are rounded once, to bf16's nearest, halves away from zero. Those
/// below 2^-22 become 0. Matrices that do not fit f16 are unpacked in f32.
template <class Halves>
void unpack_by_halves(const PackedLinear& weights, size_t tile, size_t begin, size_t end,
                      uint16_t* out) {
    if (!weights.fits_f16()) return avx512::unpack_tile(weights, tile, begin, end, out);
    simd::unpack_k_blocks<HalfGroup<Halves>>(weights, tile, begin, end, out);
}

}  // namespace
}  // namespace pagewheel::kernels::amx
