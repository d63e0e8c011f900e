// Prefill chunks over a u8 cache in 16-bit integers.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cmath>

#include "kernels/attention/prefill_float.hpp"
#include "kernels/isa/avx512/vectors.hpp"

namespace pagewheel::kernels::avx512 {
namespace {

/// sum += products of two pairs of 16-bit integers per lane. As assembly because GCC 12 copies the
/// accumulator of the intrinsic around: half the speed.
[[gnu::always_inline]] inline void add_products(__m512i& sum, __m512i a, __m512i b) {
    asm("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
}

/// The two matrix products of a u8 cache in 16-bit integers (VNNI): the codes exactly, queries and
/// probabilities rounded to 15 bits. Zero points multiply the rounded operand's sum, so that
/// rounding meets x - zero point only. Keys that are rotated are rounded to integers of their own.
class WordProducts {
    static constexpr size_t L = 16, R = PrefillTile<Avx512>::group_rows;

public:
    using Tile = PrefillTile<Avx512>;
    static constexpr size_t span_tokens = 128;
    static constexpr bool rounds_to_bf16 = false;

    WordProducts(const PrefillTile<Avx512>& tile, Scratch<Avx512>& scratch)
        : tile_(tile), floats_(tile, scratch, false) {
        block_ = tile.layout.block_size;
        words_ = tile.layout.key_words();
        width_ = padded(tile.layout.value_size);
        queries_ = scratch.take<int32_t>(tile.groups * R * floats_.stride() / 2);
        sums_ = scratch.take(tile.groups * R);
        keys_ = scratch.take<int32_t>(2 * words_ * max_span);
        key_scales_ = scratch.take(max_span);
        key_zeros_ = scratch.take(max_span);
        values_ = scratch.take<int32_t>(width_ * max_span / 2);
        scales_ = scratch.take(max_span);
        zeros_ = scratch.take(max_span);
        weights_ = scratch.take<int16_t>(R * max_span);
    }

    void load_queries() {
        floats_.load_queries();
        const size_t stride = floats_.stride(), rows = tile_.groups * R;
        __m512 largest = _mm512_setzero_ps();
        for (size_t i = 0; i < rows * stride; i += L)
            largest = _mm512_max_ps(largest, _mm512_abs_ps(_mm512_loadu_ps(floats_.queries() + i)));
        const float amplitude = _mm512_reduce_max_ps(largest);
        // Sums of the products of a whole head stay below 2^31.
        const float room = 8421504.0f / static_cast<float>(stride);
        const float steps = room < 32767 ? room : 32767;
        unit_ = amplitude > 1e-30f ? amplitude / steps : 1;
        if (tile_.batch->tables.rotated_block_indices.size)
            unit_ = std::max(unit_, longest_query() / query_length);
        for (size_t row = 0; row < rows; ++row) load_query(row);
    }

    void load_span(size_t block, size_t end) {
        for (size_t b = block; b < end; ++b) {
            if (tile_.deltas_of(b))
                load_rotated_keys(b, (b - block) * block_);
            else
                load_keys(b, (b - block) * block_);
            load_values(b, (b - block) * block_);
        }
        scale_values((end - block) * block_);
    }

    void logits(size_t group, size_t begin, size_t end, float* out) const {
        for_vector_groups<4>(begin / L, end / L,
                             [&](auto N, size_t v) PAGEWHEEL_INLINE { dot<N>(group, v, out); });
    }

    static __m512 exp2(__m512 x) { return simd::exp2_short<Avx512>(x); }

    /// Rounds the probabilities times the values' scales of a row; their largest is `steps`.
    class Row {
    public:
        Row(WordProducts& products, size_t r)
            : to_(products.weights_ + r * max_span),
              scales_(products.scales_),
              zeros_(products.zeros_),
              lanes_(products.zero_lanes_[r]) {}

        __m512 put(size_t column, __m512 p) {
            // Adding 1.5 * 2^23 rounds and leaves the integer in the low bits.
            const __m512 magic = _mm512_set1_ps(12582912);
            const __m512 rounded = _mm512_fmadd_ps(p, _mm512_loadu_ps(scales_ + column), magic);
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(to_ + column),
                                _mm512_cvtepi32_epi16(_mm512_castps_si512(rounded)));
            sum_ = _mm512_fmadd_ps(_mm512_sub_ps(rounded, magic), _mm512_loadu_ps(zeros_ + column),
                                   sum_);
            return p;
        }
        void end() { lanes_ = sum_; }

    private:
        int16_t* to_;
        const float *scales_, *zeros_;
        __m512& lanes_;
        __m512 sum_ = _mm512_setzero_ps();
    };

    void weigh(size_t begin, size_t end, const float* correction, const float* factor, float* acc,
               size_t live) {
        Avx512::reduce_sums(zero_lanes_, zero_);
        for_vector_groups<4>(0, width_ / L, [&](auto N, size_t v) PAGEWHEEL_INLINE {
            sum<N>(begin, end, correction, factor, acc + v * L, v * L, live);
        });
    }

private:
    // With queries and rotated keys no longer than this, no product reaches 2^31.
    static constexpr float query_length = 65000, rotated_length = 32767;

    float longest_query() const {
        const size_t stride = floats_.stride();
        float longest = 0;
        for (size_t row = 0; row < tile_.rows; ++row) {
            __m512 squares = _mm512_setzero_ps();
            for (size_t d = 0; d < stride; d += L) {
                const __m512 x = _mm512_loadu_ps(floats_.queries() + row * stride + d);
                squares = _mm512_fmadd_ps(x, x, squares);
            }
            longest = std::max(longest, _mm512_reduce_add_ps(squares));
        }
        return std::sqrt(longest);
    }

    /// queries_ [groups][stride / 2][group_rows], pairs of dimensions.
    void load_query(size_t row) {
        const size_t stride = floats_.stride();
        const float* from = floats_.queries() + row * stride;
        const __m512 inverse = _mm512_set1_ps(1 / unit_);
        __m512i sum = _mm512_setzero_si512();
        int32_t* to = queries_ + row / R * (stride / 2) * R + row % R;
        for (size_t d = 0; d < stride; d += L) {
            const __m512i x = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(from + d), inverse));
            sum = _mm512_add_epi32(sum, x);
            alignas(32) int32_t pairs[8];
            _mm256_store_si256(reinterpret_cast<__m256i*>(pairs), _mm512_cvtepi32_epi16(x));
            for (size_t i = 0; i < 8; ++i, to += R) *to = pairs[i];
        }
        sums_[row] = _mm512_reduce_add_ps(_mm512_cvtepi32_ps(sum));
    }

    /// What 16 tokens are read with, value = (code - zero) * scale; 0 where not in the mask.
    struct ScaleAndZero {
        ScaleAndZero(__m512i words, __mmask16 mask) {
            scale = Avx512::half_to_float(words);
            const __m512 minimum = Avx512::half_to_float(_mm512_srli_epi32(words, 16));
            zero = _mm512_maskz_div_ps(mask, _mm512_sub_ps(_mm512_setzero_ps(), minimum), scale);
        }
        __m512 scale, zero;
    };

    /// keys_ [vectors of keys][pairs of dimensions][16]; the scales times the queries' unit.
    void load_keys(size_t block, size_t column) {
        const auto* words = reinterpret_cast<const uint32_t*>(tile_.keys_of(block));
        const uint32_t* scales = words + words_ * block_;
        for (size_t lane = 0; lane < block_; lane += L) {
            int32_t* to = keys_ + (column + lane) * 2 * words_;
            for (size_t w = 0; w < words_; ++w, to += 2 * L) {
                const __m512i word = _mm512_loadu_si512(words + w * block_ + lane);
                _mm512_storeu_si512(to, Avx512::low_bytes(word));
                _mm512_storeu_si512(to + L, Avx512::high_bytes(word));
            }
            const ScaleAndZero x(_mm512_loadu_si512(scales + lane), 0xffff);
            _mm512_storeu_ps(key_scales_ + column + lane,
                             _mm512_mul_ps(x.scale, _mm512_set1_ps(unit_)));
            _mm512_storeu_ps(key_zeros_ + column + lane, x.zero);
        }
    }

    /// Loads a block with rotated keys: each is brought to rotated_length.
    void load_rotated_keys(size_t block, size_t column) {
        const float* keys = floats_.unpack_keys(block, 0);
        const size_t size = tile_.layout.key_size;
        for (size_t lane = 0; lane < block_; lane += L) {
            __m512 squares = _mm512_set1_ps(1e-30f);
            for (size_t d = 0; d < size; ++d) {
                const __m512 x = _mm512_loadu_ps(keys + d * block_ + lane);
                squares = _mm512_fmadd_ps(x, x, squares);
            }
            const __m512 unit =
                _mm512_div_ps(_mm512_sqrt_ps(squares), _mm512_set1_ps(rotated_length));
            const __m512 inverse = _mm512_div_ps(_mm512_set1_ps(1), unit);
            const auto integers = [&](size_t d) {
                if (d >= size) return _mm512_setzero_si512();
                const __m512 x = _mm512_loadu_ps(keys + d * block_ + lane);
                return _mm512_cvtps_epi32(_mm512_mul_ps(x, inverse));
            };
            int32_t* to = keys_ + (column + lane) * 2 * words_;
            for (size_t pair = 0; pair < 2 * words_; ++pair, to += L)
                _mm512_storeu_si512(
                    to, _mm512_mask_blend_epi16(0xaaaaaaaa, integers(2 * pair),
                                                _mm512_slli_epi32(integers(2 * pair + 1), 16)));
            _mm512_storeu_ps(key_scales_ + column + lane,
                             _mm512_mul_ps(unit, _mm512_set1_ps(unit_)));
            _mm512_storeu_ps(key_zeros_ + column + lane, _mm512_setzero_ps());
        }
    }

    /// values_ [pairs of tokens][width_]. Vectors that reach past the value size read into the
    /// scales, which follow in the block; it ends in the padding of the sums. Scales and zero
    /// points are 0 for tokens that no row sees, which may never have been written.
    void load_values(size_t block, size_t column) {
        const auto* words = reinterpret_cast<const uint32_t*>(tile_.values_of(block));
        const size_t size = tile_.layout.value_size, tokens = tile_.tokens_of(block);
        const uint32_t* scales = words + tile_.layout.value_rows() * size;
        int32_t* to = values_ + column / 2 * width_;
        for (size_t t = 0; t < tokens; t += 4, words += size, to += 2 * width_)
            for (size_t d = 0; d < width_; d += L) {
                const __m512i word = _mm512_loadu_si512(words + d);
                _mm512_storeu_si512(to + d, Avx512::low_bytes(word));
                _mm512_storeu_si512(to + width_ + d, Avx512::high_bytes(word));
            }
        for (size_t t = 0; t < block_; t += L) {
            const __mmask16 mask = Avx512::mask(tokens > t ? tokens - t : 0);
            const ScaleAndZero x(_mm512_maskz_loadu_epi32(mask, scales + t), mask);
            _mm512_storeu_ps(scales_ + column + t, x.scale);
            _mm512_storeu_ps(zeros_ + column + t, x.zero);
        }
    }

    /// Brings the largest scale of the span's values to 32767; value_unit_ undoes it.
    void scale_values(size_t columns) {
        __m512 largest = _mm512_setzero_ps();
        for (size_t c = 0; c < columns; c += L)
            largest = _mm512_max_ps(largest, _mm512_loadu_ps(scales_ + c));
        const float maximum = _mm512_reduce_max_ps(largest);
        value_unit_ = maximum > 1e-30f ? maximum / 32767 : 1;
        const __m512 inverse = _mm512_set1_ps(1 / value_unit_);
        for (size_t c = 0; c < columns; c += L)
            _mm512_storeu_ps(scales_ + c, _mm512_mul_ps(_mm512_loadu_ps(scales_ + c), inverse));
    }

    template <size_t N>
    [[gnu::noinline]] void dot(size_t group, size_t vector, float* out) const {
        __m512i acc[R][N];
        unrolled<R * N>([&](auto i)
                            PAGEWHEEL_INLINE { acc[i / N][i % N] = _mm512_setzero_si512(); });
        const int32_t* query = queries_ + group * (floats_.stride() / 2) * R;
        const size_t step = 2 * words_ * L;
        const int32_t* keys = keys_ + vector * step;
        for (size_t pair = 0; pair < 2 * words_; ++pair, query += R, keys += L) {
            add_outer_product<add_products>(
                acc, [&](auto r) PAGEWHEEL_INLINE { return _mm512_set1_epi32(query[r]); },
                [&](auto n) PAGEWHEEL_INLINE { return _mm512_loadu_si512(keys + n * step); });
        }
        unrolled<N>([&](auto n) PAGEWHEEL_INLINE {
            const size_t column = (vector + n) * L;
            const __m512 scale = _mm512_loadu_ps(key_scales_ + column);
            const __m512 zero = _mm512_loadu_ps(key_zeros_ + column);
            unrolled<R>([&](auto r) PAGEWHEEL_INLINE {
                const __m512 x = _mm512_fnmadd_ps(zero, _mm512_set1_ps(sums_[group * R + r]),
                                                  _mm512_cvtepi32_ps(acc[r][n]));
                _mm512_storeu_ps(out + r * max_span + column, _mm512_mul_ps(x, scale));
            });
        });
    }

    template <size_t N>
    [[gnu::noinline]] void sum(size_t begin, size_t end, const float* correction,
                               const float* factor, float* out, size_t dimension,
                               size_t live) const {
        __m512i acc[R][N];
        unrolled<R * N>([&](auto i)
                            PAGEWHEEL_INLINE { acc[i / N][i % N] = _mm512_setzero_si512(); });
        const int32_t* values = values_ + begin / 2 * width_ + dimension;
        for (size_t t = begin; t < end; t += 2, values += width_)
            add_outer_product<add_products>(
                acc,
                [&](auto r) PAGEWHEEL_INLINE {
                    return Avx512::broadcast_word(weights_ + r * max_span + t);
                },
                [&](auto n) PAGEWHEEL_INLINE { return _mm512_loadu_si512(values + n * L); });
        update_rows<Avx512, R, N>(correction, factor, value_unit_, out, width_, live,
                                  [&](auto r, auto n) PAGEWHEEL_INLINE {
                                      return _mm512_sub_ps(_mm512_cvtepi32_ps(acc[r][n]),
                                                           _mm512_set1_ps(zero_[r]));
                                  });
    }

    const PrefillTile<Avx512>& tile_;
    FloatProducts<Avx512, CacheFormat::u8> floats_;
    size_t block_, words_, width_;
    float unit_ = 1, value_unit_ = 1;  // the value of 1 in queries_ and in weights_
    int32_t* queries_;
    float* sums_;  // [groups * group_rows], of the queries' integers
    int32_t* keys_;
    float *key_scales_, *key_zeros_;  // [span]
    int32_t* values_;
    float *scales_, *zeros_;  // [span], of the values
    int16_t* weights_;        // [group_rows, max_span]
    // Sums of weights times zero points, by lanes and whole.
    __m512 zero_lanes_[R];
    float zero_[padded(R)];
};

}  // namespace
}  // namespace pagewheel::kernels::avx512
