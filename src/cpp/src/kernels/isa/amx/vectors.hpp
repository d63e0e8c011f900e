// AVX-512's vectors with what a processor with AMX has besides.
#pragma once

#include "kernels/isa/avx512/vectors.hpp"

namespace pagewheel::kernels::amx {
namespace {

struct AmxVectors : avx512::Avx512 {
    /// Each lane has the bf16 number that is nearest to `first` and, above it, to `second`.
    static I rounded_halves(F first, F second) {
        const __m512i places =
            _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7,
                             22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
        return _mm512_permutexvar_epi16(places, to_bf16(first, second));
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
