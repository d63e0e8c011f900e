#include "kernels/simd/logits.hpp"

#include "kernels/isa/avx512/kernels.hpp"
#include "kernels/isa/avx512/vectors.hpp"

namespace pagewheel::kernels::avx512 {
namespace {

struct Vectors : Avx512 {
    static Mask mask_and(Mask a, Mask b) { return static_cast<Mask>(a & b); }
    static I iota_words() {
        return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    }
    /// The lanes whose bits are set.
    static Mask mask_of_bits(uint32_t bits) { return static_cast<Mask>(bits); }
    /// Of either.
    static Mask is_nan(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q); }
    /// The lanes of the mask side by side; what follows them in memory is overwritten. Compressing
    /// into a register first: into memory it takes over a hundred cycles on some processors.
    static void compress_store(float* p, Mask m, F x) { store(p, _mm512_maskz_compress_ps(m, x)); }
    static void compress_store(uint32_t* p, Mask m, I x) {
        _mm512_storeu_si512(p, _mm512_maskz_compress_epi32(m, x));
    }
};

}  // namespace

LogitsKernels logits_kernels() {
    return simd::logits_kernels<Vectors>();
}

}  // namespace pagewheel::kernels::avx512
