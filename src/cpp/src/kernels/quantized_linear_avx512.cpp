#if defined(__x86_64__)
#include <immintrin.h>

#include <cmath>
#include <cstring>

#include "kernels/quantized_linear_tile.hpp"
#include "kernels/simd_avx512.hpp"

namespace pagewheel::kernels {
namespace {

constexpr size_t chunk = PackedLinear::chunk;

/// 16 bytes of a chunk's first or second half; zeros past k.
__m512 load_half(const float* x, size_t left) {
    if (left >= 16) return _mm512_loadu_ps(x);
    return _mm512_maskz_loadu_ps(__mmask16((1u << left) - 1), x);
}

void quantize(const float* x, size_t stride, size_t chunk_begin, size_t k,
              const QuantizedBlock& block) {
    const __m512 zero = _mm512_setzero_ps();
    for (size_t c = chunk_begin; c * chunk < k; ++c)
        for (size_t r = 0; r < block.rows; ++r) {
            const float* in = x + r * stride + (c - chunk_begin) * chunk;
            const size_t left = k - c * chunk;
            const __m512 low = load_half(in, left);
            const __m512 high = left > 16 ? load_half(in + 16, left - 16) : zero;
            const float maximum =
                _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(low), _mm512_abs_ps(high)));
            const bool nothing = maximum < smallest_maximum;
            const __m512 inverse = _mm512_set1_ps(nothing ? 0.0f : 127.0f / maximum);
            const float scale = nothing ? 0.0f : maximum / 127.0f;
            const __m512i a = _mm512_cvtps_epi32(_mm512_mul_ps(low, inverse));
            const __m512i b = _mm512_cvtps_epi32(_mm512_mul_ps(high, inverse));
            const size_t at = c * block.rows + r;
            auto* out = reinterpret_cast<__m128i*>(block.values + at * chunk);
            _mm_storeu_si128(out, _mm512_cvtepi32_epi8(a));
            _mm_storeu_si128(out + 1, _mm512_cvtepi32_epi8(b));
            // In floats, which hold it exactly: integers of a row that is not finite would
            // overflow.
            const float sum = _mm512_reduce_add_ps(_mm512_cvtepi32_ps(_mm512_add_epi32(a, b)));
            block.scales[at] = scale;
            block.sums[at] = scale * sum;
        }
}

__m512 load_f16(const uint8_t* in) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(in)));
}

__m512 load_offsets(const PackedLinear& weights, const uint8_t* in, __m512 scales) {
    switch (weights.offset()) {
        case PackedLinear::Offset::common:
            return _mm512_mul_ps(_mm512_set1_ps(-weights.common_zero_point()), scales);
        case PackedLinear::Offset::u8_zero_point: {
            const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in));
            const __m512 zero_points = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
            return _mm512_sub_ps(_mm512_setzero_ps(), _mm512_mul_ps(zero_points, scales));
        }
        case PackedLinear::Offset::f16_minimum:
            return load_f16(in);
        default:
            return _mm512_loadu_ps(in);
    }
}

/// The four bytes of activations j as all lanes.
__m512i broadcast(const int8_t* values, size_t j) {
    int four;
    std::memcpy(&four, values + 4 * j, sizeof four);
    return _mm512_set1_epi32(four);
}

/// Bytes ahead of the reader that are asked for: the processor's own prefetching stops at the end
/// of each page and starts anew with each item.
constexpr size_t prefetch_distance = 4096;

/// One tile times `rows` rows. A chunk's values lie in 8 registers (4 bits) while the rows pass by,
/// the rows' sums in `rows` more.
template <int bits, size_t rows>
void multiply(const PackedLinear& weights, const uint8_t* in, const QuantizedBlock& block,
              const TileOutput& output) {
    const auto columns = __mmask16((1u << output.columns) - 1);
    __m512 sums[rows];
#pragma GCC unroll 8
    for (size_t r = 0; r < rows; ++r)
        sums[r] = output.initial
                      ? _mm512_maskz_loadu_ps(columns, output.initial + r * output.stride)
                      : _mm512_setzero_ps();

    const size_t chunks = weights.chunks(), per_group = weights.chunks_per_group();
    const size_t scale_bytes = weights.scale_bytes(), offset_bytes = weights.offset_bytes();
    const bool f16_scales = weights.f16_scales();
    const int8_t* x = block.values;
    const float *x_scales = block.scales, *x_sums = block.sums;
    const __m512i low_nibble = _mm512_set1_epi8(15);
    for (size_t c = 0; c < chunks;) {
        const __m512 scales = f16_scales ? load_f16(in) : _mm512_loadu_ps(in);
        const __m512 minima = load_offsets(weights, in + scale_bytes, scales);
        in += scale_bytes + offset_bytes;
        const size_t end = std::min(c + per_group, chunks);
        for (; c < end; ++c) {
            __m512i values[8];
#pragma GCC unroll 8
            for (size_t j = 0; j < 64 / (bits == 4 ? 16 : 8); ++j) {
                const __m512i loaded = _mm512_loadu_si512(in + 64 * j);
                if (bits == 4) {
                    values[j] = _mm512_and_si512(loaded, low_nibble);
                    values[j + 4] = _mm512_and_si512(_mm512_srli_epi16(loaded, 4), low_nibble);
                } else {
                    values[j] = loaded;
                }
            }
            if (rows < max_block_rows)  // a full block is bound by arithmetic
#pragma GCC unroll 8
                for (size_t j = 0; j < (bits == 4 ? 5 : 9); ++j)
                    _mm_prefetch(reinterpret_cast<const char*>(in + prefetch_distance + 64 * j),
                                 _MM_HINT_T0);
            in += bits == 4 ? 256 : 512;
#pragma GCC unroll 8
            for (size_t r = 0; r < rows; ++r) {
                __m512i dot = _mm512_setzero_si512();
#pragma GCC unroll 8
                for (size_t j = 0; j < 8; ++j)
                    dot = _mm512_dpbusd_epi32(dot, values[j], broadcast(x + r * chunk, j));
                const __m512 scale = _mm512_mul_ps(scales, _mm512_set1_ps(x_scales[r]));
                sums[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scale, sums[r]);
                sums[r] = _mm512_fmadd_ps(minima, _mm512_set1_ps(x_sums[r]), sums[r]);
            }
            x += rows * chunk;
            x_scales += rows;
            x_sums += rows;
        }
    }
#pragma GCC unroll 8
    for (size_t r = 0; r < rows; ++r)
        _mm512_mask_storeu_ps(output.output + r * output.stride, columns, sums[r]);
}

template <int bits>
void multiply_rows(const PackedLinear& weights, const uint8_t* in, const QuantizedBlock& block,
                   const TileOutput& output) {
    switch (block.rows) {
        case 1:
            return multiply<bits, 1>(weights, in, block, output);
        case 2:
            return multiply<bits, 2>(weights, in, block, output);
        case 3:
            return multiply<bits, 3>(weights, in, block, output);
        case 4:
            return multiply<bits, 4>(weights, in, block, output);
        case 5:
            return multiply<bits, 5>(weights, in, block, output);
        case 6:
            return multiply<bits, 6>(weights, in, block, output);
        case 7:
            return multiply<bits, 7>(weights, in, block, output);
        default:
            return multiply<bits, 8>(weights, in, block, output);
    }
}

void multiply_any(const PackedLinear& weights, const uint8_t* in, const QuantizedBlock& block,
                  const TileOutput& output) {
    if (weights.bits() == 4)
        multiply_rows<4>(weights, in, block, output);
    else
        multiply_rows<8>(weights, in, block, output);
}

/// 16 floats from `i`; zeros past n.
__m512 load_some(const float* x, size_t i, size_t n) {
    return load_half(x + i, n - i);
}

void store_some(float* x, size_t i, size_t n, __m512 values) {
    const __mmask16 mask = n - i >= 16 ? __mmask16(0xffff) : __mmask16((1u << (n - i)) - 1);
    _mm512_mask_storeu_ps(x + i, mask, values);
}

void rms_norm(const float* x, const float* gamma, float epsilon, size_t k, float* out) {
    __m512 squares[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    for (size_t i = 0; i < k; i += 16) {
        const __m512 v = load_some(x, i, k);
        squares[i / 16 % 2] = _mm512_fmadd_ps(v, v, squares[i / 16 % 2]);
    }
    const float sum = _mm512_reduce_add_ps(_mm512_add_ps(squares[0], squares[1]));
    const __m512 factor = _mm512_set1_ps(1.0f / std::sqrt(sum / float(k) + epsilon));
    for (size_t i = 0; i < k; i += 16) {
        const __m512 v = _mm512_mul_ps(load_some(x, i, k), factor);
        store_some(out, i, k, _mm512_mul_ps(load_some(gamma, i, k), v));
    }
}

void swiglu(float* gate, const float* up, size_t n) {
    const __m512 one = _mm512_set1_ps(1), zero = _mm512_setzero_ps();
    const __m512 lowest = _mm512_set1_ps(-87), highest = _mm512_set1_ps(87);
    for (size_t i = 0; i < n; i += 16) {
        const __m512 g = load_some(gate, i, n);
        const __m512 bounded =
            _mm512_min_ps(_mm512_max_ps(_mm512_sub_ps(zero, g), lowest), highest);
        const __m512 silu = _mm512_div_ps(g, _mm512_add_ps(one, exp_avx512(bounded)));
        store_some(gate, i, n, _mm512_mul_ps(silu, load_some(up, i, n)));
    }
}

}  // namespace

const LinearVariant& linear_avx512() {
    static const LinearVariant variant{quantize, multiply_any, rms_norm, swiglu};
    return variant;
}

}  // namespace pagewheel::kernels
#endif
