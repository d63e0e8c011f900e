#include "kernels/simd/logits.hpp"

#include "kernels/isa/avx2/kernels.hpp"
#include "kernels/isa/avx2/vectors.hpp"

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

struct Vectors : Avx2 {
    static Mask mask_and(Mask a, Mask b) { return _mm256_and_si256(a, b); }
    static I iota_words() { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }
    static I lanes_of(Mask m) {
        const auto* lanes = reinterpret_cast<const __m128i*>(packed_lanes.lanes[mask_bits(m)]);
        return _mm256_cvtepu8_epi32(_mm_loadl_epi64(lanes));
    }
    /// The lanes whose bits are set.
    static Mask mask_of_bits(uint32_t bits) {
        const I each = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
        return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), each),
                                  each);
    }
    /// Of either.
    static Mask is_nan(F a, F b) { return compare<_CMP_UNORD_Q>(a, b); }
    /// The lanes of the mask side by side; what follows them in memory is overwritten.
    static void compress_store(float* p, Mask m, F x) {
        store(p, _mm256_permutevar8x32_ps(x, lanes_of(m)));
    }
    static void compress_store(uint32_t* p, Mask m, I x) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                            _mm256_permutevar8x32_epi32(x, lanes_of(m)));
    }
};

}  // namespace

LogitsKernels logits_kernels() {
    return simd::logits_kernels<Vectors>();
}

}  // namespace pagewheel::kernels::avx2
