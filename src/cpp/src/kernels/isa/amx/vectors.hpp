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

    /// 2^x to 7.5e-5 of it, for any x.
    static F exp2_rough(F x) {
        const F fraction = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
        return _mm512_scalef_ps(simd::exp2_of_fraction<AmxVectors>(fraction), x);
    }

    /// While one lives, this thread's denormals are zeros: computing with them takes long.
    class DenormalsAreZeros {
    public:
        DenormalsAreZeros() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }
        ~DenormalsAreZeros() { _mm_setcsr(before_); }
        DenormalsAreZeros(const DenormalsAreZeros&) = delete;
        DenormalsAreZeros& operator=(const DenormalsAreZeros&) = delete;

    private:
        unsigned before_;
    };
};

}  // namespace
}  // namespace pagewheel::kernels::amx
