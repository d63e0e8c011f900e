// Linear layers. Includers are compiled with or without a VNNI extension, which decides how
// integers are multiplied.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "kernels/isa/avx2/vectors.hpp"
#include "kernels/simd/linear.hpp"

namespace pagewheel::kernels::avx2 {
namespace {

constexpr size_t k_block = PackedLinear::k_block;

int horizontal_sum(__m256i v) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

/// 32 numbers of -128..127 as bytes.
void store_bytes(const __m256i (&q)[4], int8_t* out) {
    // Packing works within halves; the permutation puts the eight fours in order.
    const __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_permutevar8x32_epi32(bytes, order));
}

__m256i rounded(const float* x, float factor) {
    return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), _mm256_set1_ps(factor)));
}

/// The bits of the largest magnitude of 32 floats.
uint32_t magnitude_bits(const float* x) {
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256i largest = _mm256_setzero_si256();
    for (size_t i = 0; i < 4; ++i) {
        const __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(x + 8 * i));
        largest = _mm256_max_epi32(largest, _mm256_and_si256(bits, magnitude));
    }
    __m128i most =
        _mm_max_epi32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
    most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0x4e));
    return uint32_t(_mm_cvtsi128_si32(_mm_max_epi32(most, _mm_shuffle_epi32(most, 0xb1))));
}

/// The bytes of 32 numbers of -1904..1904.
void store_wide(const __m256i (&q)[4], int8_t* out) {
    __m256i high[2], shared[2], low[2];
    for (size_t i = 0; i < 2; ++i) {
        const __m256i first = q[i], second = q[2 + i];
        // 16 times the shared byte is within -128..127 of the second.
        const __m256i lowest =
            _mm256_srai_epi32(_mm256_sub_epi32(second, _mm256_set1_epi32(112)), 4);
        shared[i] = _mm256_add_epi32(
            lowest, _mm256_and_si256(_mm256_sub_epi32(first, lowest), _mm256_set1_epi32(15)));
        high[i] = _mm256_srai_epi32(_mm256_sub_epi32(first, shared[i]), 4);
        low[i] = _mm256_sub_epi32(second, _mm256_slli_epi32(shared[i], 4));
    }
    store_bytes({high[0], high[1], shared[0], shared[1]}, out);
    store_bytes({shared[0], shared[1], low[0], low[1]}, out + 16);
}

/// 32 floats to the place `at` of the block.
void quantize_k_block(const float* in, const QuantizedBlock& block, size_t at) {
    const uint32_t largest = magnitude_bits(in);
    const auto [factor, scale] = block.wide() ? wide_scaling(largest) : byte_scaling(largest);
    __m256i q[4];
    for (size_t i = 0; i < 4; ++i) q[i] = rounded(in + 8 * i, factor);
    const __m256i sum =
        _mm256_add_epi32(_mm256_add_epi32(q[0], q[1]), _mm256_add_epi32(q[2], q[3]));
    int8_t* out = block.values + at * block.value_bytes();
    if (block.wide()) {
        store_wide(q, out);
        block.magic[at] = scale * float_of_integers;
    } else {
        store_bytes(q, out);
    }
    block.scales[at] = scale;
    block.sums[at] = scale * float(horizontal_sum(sum));
}

void quantize(const float* x, size_t stride, size_t k_block_begin, size_t k,
              const QuantizedBlock& block) {
    for (size_t c = k_block_begin; c * k_block < k; ++c)
        for (size_t r = 0; r < block.rows; ++r) {
            const float* in = x + r * stride + (c - k_block_begin) * k_block;
            float padded[k_block] = {};
            if (k - c * k_block < k_block) {
                std::memcpy(padded, in, (k - c * k_block) * sizeof(float));
                in = padded;
            }
            quantize_k_block(in, block, c * block.stride + r);
        }
}

// Half a tile, 8 rows of weights, is worked on at a time: its rows fill a register.

__m256i broadcast(const int8_t* values, size_t j) {
    int four;
    std::memcpy(&four, values + 4 * j, sizeof four);
    return _mm256_set1_epi32(four);
}

__m256i load(const uint8_t* in) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in));
}

/// The values of 32 nibbles.
template <PackedType type>
__m256i values_of(__m256i nibbles) {
    if (type == PackedType::u4) return nibbles;
    const auto* table = reinterpret_cast<const __m128i*>(f4e2m1_values);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(table)), nibbles);
}

/// The values of half a k-block of 4 bits, 8 registers of 8 rows and four of k.
template <PackedType type>
void unpack(const uint8_t* in, size_t half, __m256i* values) {
    const __m256i low = _mm256_set1_epi8(15);
#pragma GCC unroll 4
    for (size_t j = 0; j < 4; ++j) {
        const __m256i loaded = load(in + 64 * j + 32 * half);
        values[j] = values_of<type>(_mm256_and_si256(loaded, low));
        values[j + 4] = values_of<type>(_mm256_and_si256(_mm256_srli_epi16(loaded, 4), low));
    }
}

#if defined(__AVXVNNI__) || (defined(__AVX512VNNI__) && defined(__AVX512VL__))

/// sum + the products of four u8 and four s8 each.
__m256i multiply_fours(__m256i sum, __m256i a, __m256i b) {
#if defined(__AVXVNNI__)
    return _mm256_dpbusd_avx_epi32(sum, a, b);
#else  // the same instruction in AVX-512's encoding
    return _mm256_dpbusd_epi32(sum, a, b);
#endif
}

template <PackedType>
__m256i dot_4_bits(const __m256i* values, const int8_t* x) {
    __m256i dot = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (size_t j = 0; j < 8; ++j) dot = multiply_fours(dot, values[j], broadcast(x, j));
    return dot;
}

__m256i dot_8_bits(const uint8_t* in, size_t half, const int8_t* x) {
    __m256i dot = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (size_t j = 0; j < 8; ++j)
        dot = multiply_fours(dot, load(in + 64 * j + 32 * half), broadcast(x, j));
    return dot;
}

#else

/// Four products of up to 24 * 128 twice fit 16 bits.
__m256i dot_of_fours(const __m256i* values, const int8_t* x) {
    __m256i dot = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (size_t j = 0; j < 4; ++j)
        dot = _mm256_add_epi16(dot, _mm256_maddubs_epi16(values[j], broadcast(x, j)));
    return dot;
}

/// Eight products of up to 15 * 128 twice fit 16 bits; those of f4e2m1 become longer by fours.
template <PackedType type>
__m256i dot_4_bits(const __m256i* values, const int8_t* x) {
    const __m256i first = dot_of_fours(values, x), second = dot_of_fours(values + 4, x + 16);
    const __m256i ones = _mm256_set1_epi16(1);
    if (type == PackedType::u4) return _mm256_madd_epi16(_mm256_add_epi16(first, second), ones);
    return _mm256_add_epi32(_mm256_madd_epi16(first, ones), _mm256_madd_epi16(second, ones));
}

/// Bytes as two nibbles: pairs of whole bytes times 127 would not fit 16 bits.
__m256i dot_8_bits(const uint8_t* in, size_t half, const int8_t* x) {
    const __m256i low_nibble = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    __m256i low = _mm256_setzero_si256(), high = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (size_t j = 0; j < 8; ++j) {
        const __m256i value = load(in + 64 * j + 32 * half), four = broadcast(x, j);
        const __m256i upper = _mm256_and_si256(_mm256_srli_epi16(value, 4), low_nibble);
        low =
            _mm256_add_epi16(low, _mm256_maddubs_epi16(_mm256_and_si256(value, low_nibble), four));
        high = _mm256_add_epi16(high, _mm256_maddubs_epi16(upper, four));
    }
    return _mm256_add_epi32(_mm256_madd_epi16(low, ones),
                            _mm256_slli_epi32(_mm256_madd_epi16(high, ones), 4));
}

#endif

/// Half a tile times rows [first, first + rows) of the block.
template <PackedType type, bool wide, size_t rows>
void multiply(const PackedLinear& weights, const uint8_t* in, size_t half,
              const QuantizedBlock& block, size_t first, const TileOutput& output) {
    if (output.columns <= 8 * half) return;
    const __m256i mask = Avx2::mask(output.columns - 8 * half);
    const size_t out = first * output.stride + 8 * half;
    __m256 sums[rows];
#pragma GCC unroll 4
    for (size_t r = 0; r < rows; ++r)
        sums[r] = output.initial
                      ? _mm256_maskload_ps(output.initial + out + r * output.stride, mask)
                      : _mm256_setzero_ps();

    const size_t k_blocks = weights.k_blocks(), per_group = weights.k_blocks_per_group();
    for (size_t c = 0; c < k_blocks;) {
        const __m256 scales =
            simd::load_scales<Avx2>(in + half * (weights.scale_bytes() / 2), weights.scale());
        const __m256 minima =
            simd::load_minima<Avx2>(weights, in + weights.scale_bytes(), 8 * half, scales);
        in += weights.scale_bytes() + weights.offset_bytes();
        const size_t end = std::min(c + per_group, k_blocks);
        for (; c < end; ++c) {
            __m256i values[8];
            if (type != PackedType::u8) unpack<type>(in, half, values);
#pragma GCC unroll 4
            for (size_t r = 0; r < rows; ++r) {
                const size_t at = c * block.stride + first + r;
                const auto dot_with = [&](const int8_t* x) {
                    return type == PackedType::u8 ? dot_8_bits(in, half, x)
                                                  : dot_4_bits<type>(values, x);
                };
                const int8_t* x = block.values + at * (wide ? wide_k_block_bytes : k_block);
                __m256i dot = dot_with(x);
                if (wide) dot = _mm256_add_epi32(_mm256_slli_epi32(dot, 4), dot_with(x + 16));
                const __m256 scale = _mm256_mul_ps(scales, _mm256_set1_ps(block.scales[at]));
                sums[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), scale, sums[r]);
                sums[r] = _mm256_fmadd_ps(minima, _mm256_set1_ps(block.sums[at]), sums[r]);
            }
            if (half == 0) simd::fetch<type>(in + simd::fetch_distance);
            in += 64 * bits_of(type);
        }
    }
#pragma GCC unroll 4
    for (size_t r = 0; r < rows; ++r)
        _mm256_maskstore_ps(output.output + out + r * output.stride, mask, sums[r]);
}

template <PackedType type, bool wide>
void multiply_rows(const PackedLinear& weights, const uint8_t* in, const QuantizedBlock& block,
                   const TileOutput& output) {
    for (size_t half = 0; half < 2; ++half) {
        size_t r = 0;
        for (; r + 4 <= block.rows; r += 4)
            multiply<type, wide, 4>(weights, in, half, block, r, output);
        for (; r + 2 <= block.rows; r += 2)
            multiply<type, wide, 2>(weights, in, half, block, r, output);
        for (; r < block.rows; ++r) multiply<type, wide, 1>(weights, in, half, block, r, output);
    }
}

void multiply_any(const PackedLinear& weights, const uint8_t* in, const QuantizedBlock& block,
                  const TileOutput& output) {
    with_type(weights.type(), [&](auto type) {
        const auto multiply = block.wide() ? multiply_rows<type, true> : multiply_rows<type, false>;
        multiply(weights, in, block, output);
    });
}

LinearKernels kernels_here() {
    return {quantize,
            multiply_any,
            1,
            simd::rms_norm<Avx2>,
            simd::swiglu<Avx2>,
            simd::gate<Avx2>,
            simd::rotate<Avx2>,
            simd::inner_products<Avx2>};
}

}  // namespace
}  // namespace pagewheel::kernels::avx2
