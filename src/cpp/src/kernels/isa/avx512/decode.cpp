// Decode with VNNI for u8 and u4, in f32 arithmetic for the rest.
#include <immintrin.h>
#include <cstring>
#include <type_traits>

#include "kernels/attention/decode_float.hpp"
#include "kernels/attention/decode_kernel.hpp"
#include "kernels/isa/avx512/kernels.hpp"
#include "kernels/isa/avx512/vectors.hpp"

namespace pagewheel::kernels::avx512 {
namespace {

/// Whether integers are summed by groups of the format.
template <CacheFormat Format>
constexpr bool sums_in_integers =
    FormatTraits<Format>::quantized &&
    (FormatTraits<Format>::group == 16 || FormatTraits<Format>::group == whole_head);

/// Queries and weights as 15-bit integers in two signed bytes, value = unit (128 high + low), times
/// the cache's codes: two VNNI instructions where float arithmetic takes four and the conversions.
template <CacheFormat Format>
struct IntegerArithmetic {
    using V = Avx512;
    using T = FormatTraits<Format>;
    static_assert(sums_in_integers<Format>);
    using Vec = __m512;
    static constexpr float steps = 127 * 128;

    /// sum += products of four unsigned and four signed bytes per lane. As assembly because GCC 12
    /// copies the accumulator of the intrinsic around: half the speed.
    [[gnu::always_inline]] static void add_products(__m512i& sum, __m512i codes,
                                                    __m512i signed_bytes) {
        asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(codes), "v"(signed_bytes));
    }

    [[gnu::always_inline]] static __m512 joined(__m512i high, __m512i low) {
        return _mm512_fmadd_ps(_mm512_cvtepi32_ps(high), _mm512_set1_ps(128),
                               _mm512_cvtepi32_ps(low));
    }

    [[gnu::always_inline]] static __m512i codes_of(__m512i word, size_t nibble) {
        if (T::nibbles == 1) return word;
        return _mm512_and_si512(nibble ? _mm512_srli_epi32(word, 4) : word,
                                _mm512_set1_epi32(0x0f0f0f0f));
    }

    /// 64 integers in [-steps, steps], 16 in each of x, as two bytes each.
    [[gnu::always_inline]] static void split(const __m512i (&x)[4], int8_t* high, int8_t* low) {
        // Packing interleaves the four vectors in words of 4 bytes; the permutation undoes it.
        const __m512i order =
            _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
        const __m512i half = _mm512_set1_epi16(64);
        __m512i h[2], l[2];
        unrolled<2>([&](auto i) PAGEWHEEL_INLINE {
            const __m512i pair = _mm512_packs_epi32(x[2 * i], x[2 * i + 1]);
            h[i] = _mm512_srai_epi16(_mm512_add_epi16(pair, half), 7);
            l[i] = _mm512_sub_epi16(pair, _mm512_slli_epi16(h[i], 7));
        });
        _mm512_storeu_si512(high, _mm512_permutexvar_epi32(order, _mm512_packs_epi16(h[0], h[1])));
        _mm512_storeu_si512(low, _mm512_permutexvar_epi32(order, _mm512_packs_epi16(l[0], l[1])));
    }

    static float unit(float amplitude) { return amplitude > 0 ? amplitude / steps : 1; }

    static void prepare_queries(const PreparedQueries& q, size_t rows) {
        for (size_t r = 0; r < rows; ++r) {
            __m512i sum = _mm512_setzero_si512();
            for (size_t d = 0; d < q.stride; d += 64) {
                const size_t at = r * q.stride + d;
                __m512i x[4];
                unrolled<4>([&](auto i) PAGEWHEEL_INLINE {
                    x[i] = _mm512_cvtps_epi32(_mm512_loadu_ps(q.floats + at + 16 * i));
                });
                split(x, q.high + at, q.low + at);
                if constexpr (T::group == 16)
                    _mm_storeu_ps(q.sums + at / 16, _mm_mul_ps(_mm_cvtepi32_ps(four_sums(x)),
                                                               _mm_set1_ps(q.unit[r])));
                else
                    sum = _mm512_add_epi32(sum, _mm512_add_epi32(_mm512_add_epi32(x[0], x[1]),
                                                                 _mm512_add_epi32(x[2], x[3])));
            }
            if constexpr (T::group == whole_head)
                q.sums[r * (q.stride / 16)] =
                    q.unit[r] * _mm512_reduce_add_ps(_mm512_cvtepi32_ps(sum));
        }
    }

    /// The sum of each of the four vectors.
    static __m128i four_sums(const __m512i (&x)[4]) {
        const __m512i a =
            _mm512_add_epi32(_mm512_unpacklo_epi32(x[0], x[1]), _mm512_unpackhi_epi32(x[0], x[1]));
        const __m512i b =
            _mm512_add_epi32(_mm512_unpacklo_epi32(x[2], x[3]), _mm512_unpackhi_epi32(x[2], x[3]));
        const __m512i c =
            _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
        const __m256i d =
            _mm256_add_epi32(_mm512_castsi512_si256(c), _mm512_extracti64x4_epi64(c, 1));
        return _mm_add_epi32(_mm256_castsi256_si128(d), _mm256_extracti128_si256(d, 1));
    }

    template <size_t R, size_t N>
    [[gnu::always_inline]] static void logits(const KeyLanes& keys, const PreparedQueries& q,
                                              size_t row, Vec (&out)[R][N]) {
        if constexpr (T::group == whole_head) {
            dot<R, N>(keys, 0, keys.key_words, q, row, out);
            dequantize<R, N, false>(keys, 0, q, row, out, out);
        } else {
            for (size_t g = 0; g < keys.groups; ++g) {
                const size_t begin = g * T::group_words, left = keys.key_words - begin;
                const size_t end = begin + (left < T::group_words ? left : T::group_words);
                __m512 dots[R][N];
                dot<R, N>(keys, begin, end, q, row, dots);
                if (g == 0)
                    dequantize<R, N, false>(keys, g, q, row, dots, out);
                else
                    dequantize<R, N, true>(keys, g, q, row, dots, out);
            }
        }
    }

    /// out = (or +=) dots of group g in codes as numbers.
    template <size_t R, size_t N, bool Add>
    [[gnu::always_inline]] static void dequantize(const KeyLanes& keys, size_t g,
                                                  const PreparedQueries& q, size_t row,
                                                  const Vec (&dots)[R][N], Vec (&out)[R][N]) {
        unrolled<N>([&](auto n) PAGEWHEEL_INLINE {
            const __m512i word = _mm512_loadu_si512(keys.scales + g * keys.block_size + n * 16);
            const __m512 scale = scale_of<V>(word), minimum = minimum_of<V>(word);
            if (row == 0) prefetch_line<n * 16>(keys.scales + g * keys.block_size, keys.ahead);
            unrolled<R>([&](auto r) PAGEWHEEL_INLINE {
                const __m512 factor = _mm512_mul_ps(scale, _mm512_set1_ps(q.unit[row + r]));
                const __m512 sum = _mm512_set1_ps(q.sums_of(row + r)[g]);
                const __m512 x =
                    Add ? _mm512_fmadd_ps(minimum, sum, out[r][n]) : _mm512_mul_ps(minimum, sum);
                out[r][n] = _mm512_fmadd_ps(factor, dots[r][n], x);
            });
        });
    }

    /// Products in integers of queries and codes, over words [begin, end). Not inlined: the
    /// compiler keeps accumulators in memory where it has much else to keep.
    template <size_t R, size_t N>
    [[gnu::noinline]] static void dot(const KeyLanes& keys, size_t begin, size_t end,
                                      const PreparedQueries& q, size_t row, Vec (&out)[R][N]) {
        __m512i high[R][N], low[R][N];
        unrolled<R * N>([&](auto i) PAGEWHEEL_INLINE {
            high[i / N][i % N] = low[i / N][i % N] = _mm512_setzero_si512();
        });
        const size_t stride = q.stride, block_size = keys.block_size;
        const ptrdiff_t ahead = keys.ahead;
        const uint32_t* words = keys.words + begin * block_size;
        const uint32_t* last = keys.words + end * block_size;
        const int8_t* query_high = q.high + row * stride + begin * T::dims_per_word;
        const int8_t* query_low = q.low + row * stride + begin * T::dims_per_word;
        for (; words != last; words += block_size) {
            unrolled<N>([&](auto n) PAGEWHEEL_INLINE { prefetch_line<n * 16>(words, ahead); });
            unrolled<T::nibbles>([&](auto nibble) PAGEWHEEL_INLINE {
                __m512i codes[N];
                unrolled<N>([&](auto n) PAGEWHEEL_INLINE {
                    codes[n] = codes_of(_mm512_loadu_si512(words + n * 16), nibble);
                });
                unrolled<R>([&](auto r) PAGEWHEEL_INLINE {
                    const __m512i h = V::broadcast_word(query_high + r * stride + 4 * nibble);
                    const __m512i l = V::broadcast_word(query_low + r * stride + 4 * nibble);
                    unrolled<N>([&](auto n) PAGEWHEEL_INLINE {
                        add_products(high[r][n], codes[n], h);
                        add_products(low[r][n], codes[n], l);
                    });
                });
            });
            query_high += T::dims_per_word;
            query_low += T::dims_per_word;
        }
        unrolled<R * N>([&](auto i) PAGEWHEEL_INLINE {
            out[i / N][i % N] = joined(high[i / N][i % N], low[i / N][i % N]);
        });
    }

    // Weights are whole multiples of the unit, and codes count from their middle, so that the
    // rounding of weights meets small numbers.
    static constexpr float middle = (T::levels + 1) / 2;

    static float prepare_scales(float* scales, float* minimums, size_t n) {
        __m512 largest = _mm512_setzero_ps();
        for (size_t t = 0; t < n; t += 16)
            largest = _mm512_max_ps(largest, _mm512_loadu_ps(scales + t));
        const float maximum = _mm512_reduce_max_ps(largest);
        if (!(maximum > 0)) return 0;
        const __m512 inverse = _mm512_set1_ps(steps / maximum);
        for (size_t t = 0; t < n; t += 16) {
            const __m512 scale = _mm512_loadu_ps(scales + t);
            _mm512_storeu_ps(minimums + t, _mm512_fmadd_ps(scale, _mm512_set1_ps(middle),
                                                           _mm512_loadu_ps(minimums + t)));
            _mm512_storeu_ps(scales + t, _mm512_mul_ps(scale, inverse));
        }
        return maximum / steps;
    }

    static void prepare_weights(const PreparedWeights& p, const float* probabilities, size_t rows,
                                size_t n, size_t span, const float* scales, const float* minimums) {
        for (size_t r = 0; r < rows; ++r) {
            __m512 offset = _mm512_setzero_ps();
            __m512i sum = _mm512_setzero_si512();
            for (size_t t = 0; t < n; t += 64) {
                __m512i x[4];
                unrolled<4>([&](auto i) PAGEWHEEL_INLINE {
                    const size_t at = t + 16 * i;
                    const __mmask16 mask = V::mask(n > at ? n - at : 0);
                    const __m512 e = _mm512_maskz_loadu_ps(mask, probabilities + r * span + at);
                    const __m512 scale = _mm512_maskz_loadu_ps(mask, scales + at);
                    x[i] = _mm512_cvtps_epi32(_mm512_mul_ps(e, scale));
                    offset = _mm512_fmadd_ps(e, _mm512_maskz_loadu_ps(mask, minimums + at), offset);
                    sum = _mm512_add_epi32(sum, x[i]);
                });
                split(x, p.high + r * span + t, p.low + r * span + t);
            }
            const __m512 step = _mm512_set1_ps(middle * p.unit);
            p.offsets[r] =
                _mm512_reduce_add_ps(_mm512_fnmadd_ps(step, _mm512_cvtepi32_ps(sum), offset));
        }
    }

    template <size_t R, size_t N>
    [[gnu::noinline]] static void weigh(const ValueRows& values, const __mmask16 (&mask)[N],
                                        const PreparedWeights* p, const float*, size_t row,
                                        size_t span, Vec (&out)[R][N][T::nibbles]) {
        __m512i high[R][N][T::nibbles], low[R][N][T::nibbles];
        unrolled<R * N * T::nibbles>([&](auto i) PAGEWHEEL_INLINE {
            constexpr size_t r = i / T::nibbles / N, n = i / T::nibbles % N;
            high[r][n][i % T::nibbles] = low[r][n][i % T::nibbles] = _mm512_setzero_si512();
        });
        const uint32_t* const* rows = values.rows;
        const ptrdiff_t* ahead = values.ahead;
        const size_t offset = values.offset;
        const int8_t *weights_high[T::nibbles], *weights_low[T::nibbles];
        unrolled<T::nibbles>([&](auto i) PAGEWHEEL_INLINE {
            weights_high[i] = p[i].high + row * span;
            weights_low[i] = p[i].low + row * span;
        });
        const size_t end = (values.tokens + 3) / 4;
        for (size_t i = 0; i < end; ++i) {
            const uint32_t* words = rows[i] + offset;
            if (i >= values.fetched)
                unrolled<N>([&](auto n)
                                PAGEWHEEL_INLINE { prefetch_line<n * 16>(words, ahead[i]); });
            unrolled<T::nibbles>([&](auto nibble) PAGEWHEEL_INLINE {
                __m512i codes[N];
                unrolled<N>([&](auto n) PAGEWHEEL_INLINE {
                    codes[n] = codes_of(_mm512_maskz_loadu_epi32(mask[n], words + n * 16), nibble);
                });
                unrolled<R>([&](auto r) PAGEWHEEL_INLINE {
                    const __m512i h = V::broadcast_word(weights_high[nibble] + r * span + 4 * i);
                    const __m512i l = V::broadcast_word(weights_low[nibble] + r * span + 4 * i);
                    unrolled<N>([&](auto n) PAGEWHEEL_INLINE {
                        add_products(high[r][n][nibble], codes[n], h);
                        add_products(low[r][n][nibble], codes[n], l);
                    });
                });
            });
        }
        unrolled<R * N * T::nibbles>([&](auto i) PAGEWHEEL_INLINE {
            constexpr size_t r = i / T::nibbles / N, n = i / T::nibbles % N, h = i % T::nibbles;
            out[r][n][h] = joined(high[r][n][h], low[r][n][h]);
        });
    }
};

template <CacheFormat Format>
using Arithmetic = std::conditional_t<sums_in_integers<Format>, IntegerArithmetic<Format>,
                                      FloatArithmetic<Avx512, Format>>;
template <CacheFormat Format>
using Kernel = TileKernel<Avx512, Format, Arithmetic<Format>>;

}  // namespace

DecodeKernels decode_kernels(CacheFormat format) {
    return decode_kernels_of<Avx512, Kernel>(format);
}

}  // namespace pagewheel::kernels::avx512
