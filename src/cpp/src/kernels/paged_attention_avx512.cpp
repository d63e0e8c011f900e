// Attention with AVX-512: VNNI for u8 and u4, f32 arithmetic for the rest.
#if defined(__x86_64__)
#include "kernels/paged_attention_kernel.hpp"
#include "kernels/paged_attention_write.hpp"
#include "kernels/simd_avx512.hpp"

namespace pagewheel::kernels {
namespace {

struct Avx512 {
    static constexpr size_t lanes = 16;
    using F = __m512;
    using I = __m512i;
    using Mask = __mmask16;

    static F zero() { return _mm512_setzero_ps(); }
    static F set(float x) { return _mm512_set1_ps(x); }
    static F iota() { return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); }
    static F load(const float* p) { return _mm512_loadu_ps(p); }
    static F load(const float* p, Mask m) { return _mm512_maskz_loadu_ps(m, p); }
    static void store(float* p, F x) { _mm512_storeu_ps(p, x); }
    static void store(float* p, F x, Mask m) { _mm512_mask_storeu_ps(p, m, x); }
    static I load_words(const uint32_t* p) { return _mm512_loadu_si512(p); }
    static I load_words(const uint32_t* p, Mask m) { return _mm512_maskz_loadu_epi32(m, p); }

    /// Lanes [0, n), lanes [low, high).
    static Mask mask(size_t n) { return n < 16 ? static_cast<Mask>((1u << n) - 1) : Mask(0xffff); }
    static Mask mask(size_t low, size_t high) { return static_cast<Mask>(mask(high) & ~mask(low)); }
    static F select(Mask m, F a, F b) { return _mm512_mask_blend_ps(m, b, a); }
    static F zero_below(F x, F limit, F y) {
        return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, limit, _CMP_NLT_UQ), y);
    }

    static F add(F a, F b) { return _mm512_add_ps(a, b); }
    static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
    static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
    static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
    static F fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }
    static F max(F a, F b) { return _mm512_max_ps(a, b); }
    static F abs(F a) { return _mm512_abs_ps(a); }
    static F exp(F x) { return exp_avx512(x); }
    static float sum(F x) { return _mm512_reduce_add_ps(x); }
    static float largest(F x) { return _mm512_reduce_max_ps(x); }
    static float first(F x) { return _mm512_cvtss_f32(x); }

    template <int N>
    static I shift_right(I x) {
        return _mm512_srli_epi32(x, N);
    }
    template <int N>
    static I shift_left(I x) {
        return _mm512_slli_epi32(x, N);
    }
    static I keep(I x, uint32_t bits) {
        return _mm512_and_si512(x, _mm512_set1_epi32(static_cast<int>(bits)));
    }
    static F as_float(I x) { return _mm512_castsi512_ps(x); }
    static F to_float(I x) { return _mm512_cvtepi32_ps(x); }
    static F half_to_float(I x) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(x)); }

    template <size_t R, size_t Nibbles>
    static constexpr size_t value_vectors = Nibbles == 2 ? 1
                                            : R <= 3     ? 4
                                                         : 2;

    template <class Body>
    static void for_rows(size_t rows, const Body& body) {
        size_t row = 0;
        for (; row + 6 <= rows; row += 6) body(std::integral_constant<size_t, 6>(), row);
        switch (rows - row) {
            case 1:
                return body(std::integral_constant<size_t, 1>(), row);
            case 2:
                return body(std::integral_constant<size_t, 2>(), row);
            case 3:
                return body(std::integral_constant<size_t, 3>(), row);
            case 4:
                return body(std::integral_constant<size_t, 4>(), row);
            case 5:
                return body(std::integral_constant<size_t, 5>(), row);
            default:
                return;
        }
    }

    // For TokenWriter.
    static void range(const float* x, size_t n, float& low, float& high) {
        F lowest = set(x[0]), highest = lowest;
        for (size_t i = 0; i < n; i += 16) {
            const F v = _mm512_mask_loadu_ps(set(x[0]), mask(n - i), x + i);
            lowest = _mm512_min_ps(lowest, v);
            highest = _mm512_max_ps(highest, v);
        }
        low = _mm512_reduce_min_ps(lowest);
        high = _mm512_reduce_max_ps(highest);
    }
    static void quantize(const float* x, size_t n, float low, float inverse, float levels,
                         uint8_t* codes) {
        for (size_t i = 0; i < n; i += 16) {
            const F v = mul(sub(load(x + i, mask(n - i)), set(low)), set(inverse));
            const F clipped = _mm512_min_ps(max(v, zero()), set(levels));
            _mm_mask_storeu_epi8(codes + i, mask(n - i),
                                 _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(clipped)));
        }
    }
    static __m256i bf16_of(F x) {
        const I bits = _mm512_castps_si512(x);
        const I odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
        const I rounded = _mm512_add_epi32(_mm512_add_epi32(bits, odd), _mm512_set1_epi32(0x7fff));
        return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
    }
    static void to_bf16(const float* x, size_t n, uint16_t* out) {
        for (size_t i = 0; i < n; i += 16)
            _mm256_mask_storeu_epi16(out + i, mask(n - i), bf16_of(load(x + i, mask(n - i))));
    }
    static void to_f16(const float* x, size_t n, uint16_t* out) {
        for (size_t i = 0; i < n; i += 16)
            _mm256_mask_storeu_epi16(
                out + i, mask(n - i),
                _mm512_cvtps_ph(load(x + i, mask(n - i)), _MM_FROUND_TO_NEAREST_INT));
    }
};

/// Four signed bytes in every lane.
__m512i broadcast4(const int8_t* p) {
    int32_t word;
    std::memcpy(&word, p, 4);
    return _mm512_set1_epi32(word);
}

/// sum += products of four unsigned and four signed bytes per lane. As assembly because GCC 12
/// copies the accumulator of the intrinsic around: half the speed.
[[gnu::always_inline]] inline void add_products(__m512i& sum, __m512i codes, __m512i signed_bytes) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(codes), "v"(signed_bytes));
}

/// Queries and weights as 15-bit integers in two signed bytes, value = unit (128 high + low), times
/// the cache's codes: two VNNI instructions where float arithmetic takes four and the conversions.
/// Zero points multiply the rounded operand's sum, so rounding meets x - zero point only.
template <CacheFormat Format>
struct IntegerArithmetic {
    using T = FormatTraits<Avx512, Format>;
    using Vec = __m512;
    static constexpr float steps = 127 * 128;

    /// 16 integers in [-steps, steps] as two bytes each.
    static void split(__m512i integers, int8_t* high, int8_t* low) {
        const __m512i h = _mm512_srai_epi32(_mm512_add_epi32(integers, _mm512_set1_epi32(64)), 7);
        const __m512i l = _mm512_sub_epi32(integers, _mm512_slli_epi32(h, 7));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(high), _mm512_cvtepi32_epi8(h));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(low), _mm512_cvtepi32_epi8(l));
    }

    static void prepare_queries(const PreparedQueries& q, size_t rows, size_t, size_t stride,
                                size_t groups, float amplitude) {
        const float unit = amplitude > 0 ? amplitude / steps : 1;
        const __m512 inverse = _mm512_set1_ps(1 / unit);
        const size_t group = Format == CacheFormat::u4 ? u4_group : stride;
        for (size_t r = 0; r < rows; ++r) {
            q.unit[r] = unit;
            for (size_t g = 0; g < groups; ++g) {
                __m512i sum = _mm512_setzero_si512();
                for (size_t d = g * group; d < (g + 1) * group && d < stride; d += 16) {
                    const size_t at = r * stride + d;
                    const __m512i x =
                        _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(q.floats + at), inverse));
                    split(x, q.high + at, q.low + at);
                    sum = _mm512_add_epi32(sum, x);
                }
                q.sums[r * groups + g] = static_cast<float>(_mm512_reduce_add_epi32(sum));
            }
        }
    }

    static __m512 joined(__m512i high, __m512i low) {
        return _mm512_fmadd_ps(_mm512_cvtepi32_ps(high), _mm512_set1_ps(128),
                               _mm512_cvtepi32_ps(low));
    }

    template <size_t R, size_t N>
    [[gnu::always_inline]] static void dot(const uint32_t* words, size_t block_size, size_t begin,
                                           size_t end, const PreparedQueries& q, size_t row,
                                           size_t stride, Vec (&out)[R][N]) {
        __m512i high[R][N], low[R][N];
        unrolled<R * N>([&](auto i) PAGEWHEEL_INLINE {
            high[i / N][i % N] = low[i / N][i % N] = _mm512_setzero_si512();
        });
        const int8_t *query_high = q.high + row * stride, *query_low = q.low + row * stride;
        for (size_t w = begin; w < end; ++w)
            unrolled<T::nibbles>([&](auto nibble) PAGEWHEEL_INLINE {
                __m512i codes[N];
                unrolled<N>([&](auto n) PAGEWHEEL_INLINE {
                    codes[n] =
                        codes_of(_mm512_loadu_si512(words + w * block_size + n * 16), nibble);
                });
                const size_t d = w * T::dims_per_word + 4 * nibble;
                unrolled<R>([&](auto r) PAGEWHEEL_INLINE {
                    const __m512i h = broadcast4(query_high + r * stride + d);
                    const __m512i l = broadcast4(query_low + r * stride + d);
                    unrolled<N>([&](auto n) PAGEWHEEL_INLINE {
                        add_products(high[r][n], codes[n], h);
                        add_products(low[r][n], codes[n], l);
                    });
                });
            });
        unrolled<R * N>([&](auto i) PAGEWHEEL_INLINE {
            out[i / N][i % N] = joined(high[i / N][i % N], low[i / N][i % N]);
        });
    }

    static __m512i codes_of(__m512i word, size_t nibble) {
        if (T::nibbles == 1) return word;
        return Avx512::keep(nibble ? _mm512_srli_epi32(word, 4) : word, 0x0f0f0f0f);
    }

    static void prepare_weights(const PreparedWeights& p, const float* probabilities, size_t rows,
                                size_t n, size_t span, const float* scales, const float* zeros) {
        for (size_t r = 0; r < rows; ++r) {
            const size_t row = r * span;
            __m512 largest = _mm512_setzero_ps();
            for (size_t t = 0; t < n; t += 16) {
                const __m512 w = _mm512_mul_ps(_mm512_loadu_ps(probabilities + row + t),
                                               _mm512_loadu_ps(scales + t));
                _mm512_storeu_ps(p.floats + row + t, w);
                largest = _mm512_max_ps(largest, w);
            }
            const float maximum = _mm512_reduce_max_ps(largest);
            p.unit[r] = maximum > 1e-30f ? maximum / steps : 1;
            const __m512 inverse = _mm512_set1_ps(1 / p.unit[r]);
            __m512 zero = _mm512_setzero_ps();
            for (size_t t = 0; t < n; t += 16) {
                const __m512i x =
                    _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(p.floats + row + t), inverse));
                split(x, p.high + row + t, p.low + row + t);
                zero = _mm512_fmadd_ps(_mm512_cvtepi32_ps(x), _mm512_loadu_ps(zeros + t), zero);
            }
            p.zeros[r] = _mm512_reduce_add_ps(zero);
        }
    }

    template <size_t R, size_t N>
    struct Sums {
        __m512i high[R][N][T::nibbles], low[R][N][T::nibbles];
        [[gnu::always_inline]] Sums() {
            unrolled<R * N * T::nibbles>([&](auto i) PAGEWHEEL_INLINE {
                constexpr size_t r = i / T::nibbles / N, n = i / T::nibbles % N;
                high[r][n][i % T::nibbles] = low[r][n][i % T::nibbles] = _mm512_setzero_si512();
            });
        }
        [[gnu::always_inline]] Vec get(size_t r, size_t n, size_t i) const {
            return joined(high[r][n][i], low[r][n][i]);
        }
    };

    template <size_t R, size_t N>
    [[gnu::always_inline]] static void accumulate(const uint32_t* words, size_t row_words,
                                                  size_t tokens, const __mmask16 (&mask)[N],
                                                  const PreparedWeights& p, const float*,
                                                  size_t row, size_t span, size_t first,
                                                  Sums<R, N>& sums) {
        const int8_t *weights_high = p.high + row * span + first,
                     *weights_low = p.low + row * span + first;
        for (size_t t = 0; t < tokens; t += 4, words += row_words)
            unrolled<T::nibbles>([&](auto i) PAGEWHEEL_INLINE {
                __m512i codes[N];
                unrolled<N>([&](auto n) PAGEWHEEL_INLINE {
                    codes[n] = codes_of(Avx512::load_words(words + n * 16, mask[n]), i);
                });
                unrolled<R>([&](auto r) PAGEWHEEL_INLINE {
                    const __m512i h = broadcast4(weights_high + r * span + t);
                    const __m512i l = broadcast4(weights_low + r * span + t);
                    unrolled<N>([&](auto n) PAGEWHEEL_INLINE {
                        add_products(sums.high[r][n][i], codes[n], h);
                        add_products(sums.low[r][n][i], codes[n], l);
                    });
                });
            });
    }
};

template <CacheFormat Format>
using Kernel =
    TileKernel<Avx512, Format,
               std::conditional_t<Format == CacheFormat::u8 || Format == CacheFormat::u4,
                                  IntegerArithmetic<Format>, FloatArithmetic<Avx512, Format>>>;

}  // namespace

const AttentionVariant& attention_avx512() {
    static constexpr AttentionVariant variant = attention_variant<Avx512, Kernel>();
    return variant;
}

}  // namespace pagewheel::kernels
#endif
