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
};

}  // namespace
}  // namespace pagewheel::kernels::amx
