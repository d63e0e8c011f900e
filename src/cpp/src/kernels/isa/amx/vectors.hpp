// AVX-512's vectors with what a processor with AMX has besides.
#pragma once

#include "kernels/isa/avx512/vectors.hpp"

namespace pagewheel::kernels::amx {
namespace {

struct AmxVectors : avx512::Avx512 {
    /// The instruction is assembly, so that the compiler needs no option for it.
    [[gnu::always_inline]] static __m256i to_bf16(F x) {
        __m256i halves;
        asm("vcvtneps2bf16 %1, %0" : "=v"(halves) : "v"(x));
        return halves;
    }
    static F bf16_to_float(__m256i halves) {
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
    }

    /// Of each lane a word: the upper halves of `first` and, above it, `second`.
    static I upper_halves(F first, F second) {
        constexpr __mmask32 upper = 0xaaaaaaaa;
        return _mm512_mask_blend_epi16(upper, shift_right<16>(as_words(first)), as_words(second));
    }

    /// The same of what is nearest in bf16.
    static I rounded_halves(F first, F second) {
        __m512i halves;  // 16 of `first`, then 16 of `second`
        asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(halves) : "v"(first), "v"(second));
        const __m512i places =
            _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7,
                             22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
        return _mm512_permutexvar_epi16(places, halves);
    }

    /// 2^x to 7.5e-5 of it, for any x.
    static F exp2_rough(F x) {
        const F fraction = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
        return _mm512_scalef_ps(simd::exp2_of_fraction<AmxVectors>(fraction), x);
    }

    /// From here to restore(), this thread's denormals are zeros: computing with them takes long.
    /// No object with a destructor, which would take code for exceptions that other object files
    /// have too.
    static unsigned without_denormals() {
        const unsigned before = _mm_getcsr();
        _mm_setcsr(before | 0x8040);  // flush to zero, denormals are zeros
        return before;
    }
    static void restore(unsigned before) { _mm_setcsr(before); }
};

}  // namespace
}  // namespace pagewheel::kernels::amx
