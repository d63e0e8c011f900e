// AMX's kernels where there is no AMX: what they answer can be measured, not how fast they are.
#include <immintrin.h>

#include "kernels/isa/amx/linear.hpp"
#include "kernels/isa/amx/prefill_tiles.hpp"
#include "kernels/isa/amx/unpack_f16.hpp"
#include "kernels/isa/amx/vectors.hpp"
#include "kernels/isa/avx512/kernels.hpp"
#include "kernels/tiles.hpp"

namespace pagewheel::kernels::amx_model {
namespace {

/// Tile registers computed with AVX-512 (kernels/tiles.hpp says what they do): the bits of the
/// tests' EmulatedTiles, fast enough to run a model. Whole tiles only, and nothing is checked.
class ModelTiles {
public:
    void configure() const {}

    template <int T>
    void zero() {
        for (__m512i& row : m_tiles[T].rows) row = _mm512_setzero_si512();
    }
    template <int T>
    void load(const void* from, size_t stride) {
        for (size_t i = 0; i < side; ++i)
            m_tiles[T].rows[i] = _mm512_loadu_si512(static_cast<const char*>(from) + i * stride);
    }
    template <int T>
    void load_streamed(const void* from, size_t stride) {
        load<T>(from, stride);
    }
    template <int T>
    void store(void* to, size_t stride) const {
        for (size_t i = 0; i < side; ++i)
            _mm512_storeu_si512(static_cast<char*>(to) + i * stride, m_tiles[T].rows[i]);
    }
    /// vdpbf16ps has another order (it adds each pair's second product to C, then the first), so
    /// these are f32's own products, which are exact before they are added.
    template <int C, int A, int B>
    void dpbf16() {
        const unsigned before = _mm_getcsr();
        _mm_setcsr(to_nearest_denormals_zero);
        add_products(m_tiles[C], m_tiles[A], m_tiles[B]);
        _mm_setcsr(before);
    }

private:
    static constexpr size_t side = TileConfig::most_rows;
    /// MXCSR: FTZ, DAZ and all exceptions masked.
    static constexpr unsigned to_nearest_denormals_zero = 0x8000 | 0x1f80 | 0x40;

    struct alignas(64) Tile {
        __m512i rows[side];
    };

    /// Even and odd elements along k have a sum each; C takes the sum of both. Not inlined, so that
    /// no arithmetic leaves the lines between which MXCSR is ours.
    [[gnu::noinline]] static void add_products(Tile& c, const Tile& a, const Tile& b) {
        const __m512i upper = _mm512_set1_epi32(int(0xffff0000));
        const auto even_of = [](__m512i pairs) {
            return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
        };
        const auto odd_of = [&](__m512i pairs) {
            return _mm512_castsi512_ps(_mm512_and_si512(pairs, upper));
        };
        alignas(64) float x[side][2 * side];  // a row's even elements, then its odd ones
        for (size_t m = 0; m < side; ++m) {
            _mm512_store_ps(x[m], even_of(a.rows[m]));
            _mm512_store_ps(x[m] + side, odd_of(a.rows[m]));
        }
        constexpr size_t at_once = 8;  // whose sums are 16 registers
        for (size_t first = 0; first < side; first += at_once) {
            __m512 even[at_once], odd[at_once];
            for (size_t m = 0; m < at_once; ++m) even[m] = odd[m] = _mm512_setzero_ps();
            for (size_t p = 0; p < side; ++p) {
                const __m512 left = even_of(b.rows[p]), right = odd_of(b.rows[p]);
#pragma GCC unroll 8
                for (size_t m = 0; m < at_once; ++m) {
                    const float* of = x[first + m] + p;
                    even[m] = _mm512_fmadd_ps(_mm512_set1_ps(of[0]), left, even[m]);
                    odd[m] = _mm512_fmadd_ps(_mm512_set1_ps(of[side]), right, odd[m]);
                }
            }
            for (size_t m = 0; m < at_once; ++m) {
                __m512i& sums = c.rows[first + m];
                sums = _mm512_castps_si512(
                    _mm512_add_ps(_mm512_castsi512_ps(sums), _mm512_add_ps(even[m], odd[m])));
            }
        }
    }

    Tile m_tiles[TileConfig::tiles];
};

}  // namespace

Kernels kernels(CpuFeatures features) {
    Kernels all = avx512::kernels(features);
    all.linear.bf16 = amx::bf16_kernels<amx::AmxVectors, ModelTiles>(avx512::bf16_kernels());
    all.linear.bf16.unpack = amx::unpack_by_halves<amx::ModelHalves>;
    all.attention.prefill_bf16 = amx::PrefillOnTiles<amx::AmxVectors, ModelTiles>::kernels;
    return all;
}

}  // namespace pagewheel::kernels::amx_model
