// Prompt chunks with AVX-512: VNNI for u8, f32 arithmetic for the rest.
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/paged_attention_prefill_kernel.hpp"

namespace pagewheel::kernels {
namespace {

struct Avx512 {
    static constexpr size_t lanes = 16, columns = 4;
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

    static F add(F a, F b) { return _mm512_add_ps(a, b); }
    static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
    static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
    static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
    static F fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }
    static F max(F a, F b) { return _mm512_max_ps(a, b); }
    static float sum(F x) { return _mm512_reduce_add_ps(x); }
    static float largest(F x) { return _mm512_reduce_max_ps(x); }
    static float first(F x) { return _mm512_cvtss_f32(x); }

    /// 2^x for x <= 0, relative error below 3e-7; 0 where it vanishes.
    static F exp2(F x) {
        const F n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        const F r = sub(x, n);
        F p = set(exp2_coefficients[5]);
        unrolled<5>([&](auto i) PAGEWHEEL_INLINE { p = fma(p, r, set(exp2_coefficients[4 - i])); });
        return _mm512_scalef_ps(p, n);
    }

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
};

/// sum += products of four unsigned and four signed bytes per lane. As assembly because GCC 12
/// copies the accumulator of the intrinsic around: half the speed.
[[gnu::always_inline]] inline void add_products(__m512i& sum, __m512i codes, __m512i signed_bytes) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(codes), "v"(signed_bytes));
}

/// 16 integers in [-127 * 128, 127 * 128] as 128 high + low.
struct SplitBytes {
    explicit SplitBytes(__m512i integers) {
        const __m512i h = _mm512_srai_epi32(_mm512_add_epi32(integers, _mm512_set1_epi32(64)), 7);
        high = _mm512_cvtepi32_epi8(h);
        low = _mm512_cvtepi32_epi8(_mm512_sub_epi32(integers, _mm512_slli_epi32(h, 7)));
    }
    __m128i high, low;
};

/// The two matrix products of a u8 cache in VNNI, on the codes as they lie. Queries and
/// probabilities are 15-bit integers in two signed bytes; zero points multiply the rounded
/// operand's sum, so that rounding meets x - zero point only. Spans with turned keys take f32.
class ByteProducts {
    static constexpr size_t L = 16, R = group_rows;
    static constexpr float steps = 127 * 128;

public:
    static constexpr size_t span_tokens = 128;

    ByteProducts(const PrefillTile<Avx512>& tile, Scratch<Avx512>& scratch)
        : tile_(tile), floats_(tile, scratch, false) {
        block_ = tile.layout.block_size;
        words_ = tile.layout.key_words();
        width_ = padded(tile.layout.value_size);
        queries_ = scratch.take<int32_t>(tile.groups * R * words_padded() * 2);
        unit_ = scratch.take(tile.groups * R);
        sums_ = scratch.take(tile.groups * R);
        scales_ = scratch.take(max_span);
        zeros_ = scratch.take(max_span);
        high_ = scratch.take<int8_t>(R * max_span);
        low_ = scratch.take<int8_t>(R * max_span);
    }

    void load_queries() {
        floats_.load_queries();
        for (size_t row = 0; row < tile_.groups * R; ++row) load_query(row);
    }

    void load_span(size_t block, size_t end) {
        turned_ = false;
        for (size_t b = block; b < end; ++b) turned_ |= tile_.deltas_of(b) != nullptr;
        if (turned_) floats_.load_keys(block, end);
        for (size_t b = block; b < end; ++b) {
            const auto* keys = reinterpret_cast<const uint32_t*>(tile_.keys_of(b));
            const size_t column = (b - block) * block_;
            for (size_t lane = 0; lane < block_; lane += L)
                key_lanes_[(column + lane) / L] = keys + lane;
            load_values(b, column);
        }
    }

    void logits(size_t group, size_t begin, size_t end, float* out) const {
        if (turned_) return floats_.logits(group, begin, end, out);
        size_t v = begin / L;
        for (; (v + 2) * L <= end; v += 2) dot<2>(group, v, out);
        if (v * L < end) dot<1>(group, v, out);
    }

    void weigh(size_t, size_t begin, size_t end, float* probabilities, const float* correction,
               float* acc, size_t live) {
        float unit[R], zero[R];
        for (size_t r = 0; r < R; ++r) prepare_row(r, begin, end, probabilities, unit[r], zero[r]);
        size_t d = 0;
        for (; d + 2 * L <= width_; d += 2 * L)
            sum<2>(begin, end, unit, zero, correction, acc + d, d, live);
        if (d < width_) sum<1>(begin, end, unit, zero, correction, acc + d, d, live);
    }

private:
    /// Words of a query row: whole vectors of 16 bytes.
    size_t words_padded() const { return floats_.stride() / 4; }

    /// queries_ [groups][words_padded][group_rows][high, low].
    void load_query(size_t row) {
        const size_t stride = floats_.stride();
        const float* from = floats_.queries() + row * stride;
        __m512 largest = _mm512_setzero_ps();
        for (size_t d = 0; d < stride; d += L)
            largest = _mm512_max_ps(largest, _mm512_abs_ps(_mm512_loadu_ps(from + d)));
        const float amplitude = _mm512_reduce_max_ps(largest);
        unit_[row] = amplitude > 1e-30f ? amplitude / steps : 1;
        const __m512 inverse = _mm512_set1_ps(1 / unit_[row]);
        __m512i sum = _mm512_setzero_si512();
        int32_t* to = queries_ + (row / R * words_padded() * R + row % R) * 2;
        for (size_t d = 0; d < stride; d += L) {
            const __m512i x = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(from + d), inverse));
            sum = _mm512_add_epi32(sum, x);
            alignas(16) int32_t high[4], low[4];
            const SplitBytes bytes(x);
            _mm_store_si128(reinterpret_cast<__m128i*>(high), bytes.high);
            _mm_store_si128(reinterpret_cast<__m128i*>(low), bytes.low);
            for (size_t i = 0; i < 4; ++i, to += 2 * R) to[0] = high[i], to[1] = low[i];
        }
        sums_[row] = static_cast<float>(_mm512_reduce_add_epi32(sum));
    }

    static __m512 joined(__m512i high, __m512i low) {
        return _mm512_fmadd_ps(_mm512_cvtepi32_ps(high), _mm512_set1_ps(128),
                               _mm512_cvtepi32_ps(low));
    }

    template <size_t N>
    [[gnu::noinline]] void dot(size_t group, size_t vector, float* out) const {
        const uint32_t* keys[N];
        unrolled<N>([&](auto n) PAGEWHEEL_INLINE { keys[n] = key_lanes_[vector + n]; });
        __m512i high[R][N], low[R][N];
        unrolled<R * N>([&](auto i) PAGEWHEEL_INLINE {
            high[i / N][i % N] = low[i / N][i % N] = _mm512_setzero_si512();
        });
        const int32_t* query = queries_ + group * words_padded() * R * 2;
        const size_t block = block_, end = words_ * block;
        for (size_t at = 0; at < end; at += block, query += 2 * R) {
            __m512i codes[N];
            unrolled<N>([&](auto n)
                            PAGEWHEEL_INLINE { codes[n] = _mm512_loadu_si512(keys[n] + at); });
            unrolled<R>([&](auto r) PAGEWHEEL_INLINE {
                const __m512i h = _mm512_set1_epi32(query[2 * r]);
                const __m512i l = _mm512_set1_epi32(query[2 * r + 1]);
                unrolled<N>([&](auto n) PAGEWHEEL_INLINE {
                    add_products(high[r][n], codes[n], h);
                    add_products(low[r][n], codes[n], l);
                });
            });
        }
        unrolled<N>([&](auto n) PAGEWHEEL_INLINE {
            const auto* scales = reinterpret_cast<const float*>(keys[n] + end);
            const __m512 scale = _mm512_loadu_ps(scales), zero = _mm512_loadu_ps(scales + block);
            unrolled<R>([&](auto r) PAGEWHEEL_INLINE {
                const size_t row = group * R + r;
                const __m512 x = _mm512_fnmadd_ps(zero, _mm512_set1_ps(sums_[row]),
                                                  joined(high[r][n], low[r][n]));
                _mm512_storeu_ps(
                    out + r * max_span + (vector + n) * L,
                    _mm512_mul_ps(x, _mm512_mul_ps(scale, _mm512_set1_ps(unit_[row]))));
            });
        });
    }

    /// Scales and zero points of the block's values to the span's columns from `column`; 0 for
    /// tokens that no row sees, which may never have been written.
    void load_values(size_t block, size_t column) {
        const auto* words = reinterpret_cast<const uint32_t*>(tile_.values_of(block));
        const auto* scales = reinterpret_cast<const float*>(words) +
                             tile_.layout.value_rows() * tile_.layout.value_row_words();
        const size_t tokens = tile_.tokens_of(block);
        for (size_t t = 0; t < block_; t += L) {
            const __mmask16 mask = Avx512::mask(tokens > t ? tokens - t : 0);
            _mm512_storeu_ps(scales_ + column + t, _mm512_maskz_loadu_ps(mask, scales + t));
            _mm512_storeu_ps(zeros_ + column + t, _mm512_maskz_loadu_ps(mask, scales + block_ + t));
        }
        value_blocks_[column / block_] = words;
    }

    /// Probabilities times the values' scales, of one row, as bytes in units of `unit`; `zero` is
    /// the sum of them times the zero points.
    void prepare_row(size_t r, size_t begin, size_t end, float* probabilities, float& unit,
                     float& zero) {
        float* weights = probabilities + r * max_span;
        __m512 largest = _mm512_setzero_ps();
        for (size_t t = begin; t < end; t += L) {
            const __m512 w =
                _mm512_mul_ps(_mm512_loadu_ps(weights + t), _mm512_loadu_ps(scales_ + t));
            _mm512_storeu_ps(weights + t, w);
            largest = _mm512_max_ps(largest, w);
        }
        const float maximum = _mm512_reduce_max_ps(largest);
        unit = maximum > 1e-30f ? maximum / steps : 1;
        const __m512 inverse = _mm512_set1_ps(1 / unit);
        __m512 zeros = _mm512_setzero_ps();
        for (size_t t = begin; t < end; t += L) {
            const __m512i x =
                _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(weights + t), inverse));
            const SplitBytes bytes(x);
            _mm_storeu_si128(reinterpret_cast<__m128i*>(high_ + r * max_span + t), bytes.high);
            _mm_storeu_si128(reinterpret_cast<__m128i*>(low_ + r * max_span + t), bytes.low);
            zeros = _mm512_fmadd_ps(_mm512_cvtepi32_ps(x), _mm512_loadu_ps(zeros_ + t), zeros);
        }
        zero = _mm512_reduce_add_ps(zeros);
    }

    static __m512i broadcast4(const int8_t* p) {
        int32_t word;
        __builtin_memcpy(&word, p, 4);
        return _mm512_set1_epi32(word);
    }

    /// The sums of N vectors of dimensions. Vectors that reach past the value size read into the
    /// scales, which follow in the block, and put what they find into the padding of acc.
    template <size_t N>
    [[gnu::noinline]] void sum(size_t begin, size_t end, const float* unit, const float* zero,
                               const float* correction, float* out, size_t dimension,
                               size_t live) const {
        __m512i high[R][N], low[R][N];
        unrolled<R * N>([&](auto i) PAGEWHEEL_INLINE {
            high[i / N][i % N] = low[i / N][i % N] = _mm512_setzero_si512();
        });
        const size_t row_words = tile_.layout.value_size;
        for (size_t t = begin; t < end;) {
            const size_t b = t / block_;
            const uint32_t* words = value_blocks_[b] + (t - b * block_) / 4 * row_words + dimension;
            const size_t stop = (b + 1) * block_ < end ? (b + 1) * block_ : end;
            for (; t < stop; t += 4, words += row_words) {
                __m512i codes[N];
                unrolled<N>([&](auto n)
                                PAGEWHEEL_INLINE { codes[n] = _mm512_loadu_si512(words + n * L); });
                unrolled<R>([&](auto r) PAGEWHEEL_INLINE {
                    const __m512i h = broadcast4(high_ + r * max_span + t);
                    const __m512i l = broadcast4(low_ + r * max_span + t);
                    unrolled<N>([&](auto n) PAGEWHEEL_INLINE {
                        add_products(high[r][n], codes[n], h);
                        add_products(low[r][n], codes[n], l);
                    });
                });
            }
        }
        unrolled<R>([&](auto r) PAGEWHEEL_INLINE {
            if (r >= live) return;
            const __m512 c = _mm512_set1_ps(correction[r]), u = _mm512_set1_ps(unit[r]);
            const __m512 z = _mm512_set1_ps(zero[r]);
            float* row = out + r * width_;
            unrolled<N>([&](auto n) PAGEWHEEL_INLINE {
                const __m512 x = _mm512_sub_ps(joined(high[r][n], low[r][n]), z);
                const __m512 before = _mm512_mul_ps(c, _mm512_loadu_ps(row + n * L));
                _mm512_storeu_ps(row + n * L, _mm512_fmadd_ps(x, u, before));
            });
        });
    }

    const PrefillTile<Avx512>& tile_;
    FloatProducts<Avx512, CacheFormat::u8> floats_;
    size_t block_, words_, width_;
    bool turned_ = false;
    int32_t* queries_;
    float *unit_, *sums_;     // [groups * group_rows]: value of 1, sum of the integers
    float *scales_, *zeros_;  // [span], of the values
    int8_t *high_, *low_;     // [group_rows, max_span]
    const uint32_t* key_lanes_[max_span / L];
    const uint32_t* value_blocks_[max_span / 16];
};

template <CacheFormat Format>
using Products =
    std::conditional_t<Format == CacheFormat::u8, ByteProducts, FloatProducts<Avx512, Format>>;

}  // namespace

const PrefillVariant& prefill_avx512() {
    static constexpr PrefillVariant variant = prefill_variant<Avx512, Products>();
    return variant;
}

}  // namespace pagewheel::kernels
#endif
