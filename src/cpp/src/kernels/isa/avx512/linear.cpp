// Linear layers with VNNI.
#include <immintrin.h>

#include <cstring>

#include "kernels/isa/avx512/kernels.hpp"
#include "kernels/isa/avx512/vectors.hpp"
#include "kernels/simd/linear.hpp"

namespace pagewheel::kernels::avx512 {
namespace {

constexpr size_t k_block = PackedLinear::k_block;

/// The sum of a's four lanes and that of b's.
struct Sums {
    int a, b;
};

Sums sums_of(__m128i a, __m128i b) {
    const __m128i twos = _mm_hadd_epi32(a, b);
    const __m128i both = _mm_hadd_epi32(twos, twos);
    return {_mm_cvtsi128_si32(both), _mm_extract_epi32(both, 1)};
}

/// What brings values from -lowest to highest, of 240 steps in all, to -120..120.
int move_of(float highest, float lowest) {
    // Conversions that give INT_MIN for what is not finite.
    const int up = _mm_cvtss_si32(_mm_set_ss(highest)), down = _mm_cvtss_si32(_mm_set_ss(-lowest));
    if (up > 120) return std::max(120 - up, -7);
    return down > 120 ? std::min(down - 120, 7) : 0;
}

/// Values of a k-block's first and second half, -1904..1904 if they are finite, to the place `at`.
void store_wide_k_block(__m512i first, __m512i second, float scale, const QuantizedBlock& block,
                        size_t at) {
    // The byte that both share: 16 times it is within -128..127 of the second.
    const __m512i lowest = _mm512_srai_epi32(_mm512_sub_epi32(second, _mm512_set1_epi32(112)), 4);
    const __m512i shared = _mm512_add_epi32(
        lowest, _mm512_and_si512(_mm512_sub_epi32(first, lowest), _mm512_set1_epi32(15)));
    const __m512i bytes[] = {_mm512_srai_epi32(_mm512_sub_epi32(first, shared), 4), shared,
                             _mm512_sub_epi32(second, _mm512_slli_epi32(shared, 4))};
    auto* out = reinterpret_cast<__m128i*>(block.values + at * wide_k_block_bytes);
    for (size_t i = 0; i < 3; ++i) _mm_storeu_si128(out + i, _mm512_cvtepi32_epi8(bytes[i]));
    block.scales[at] = scale;
    block.sums[at] = scale * float(_mm512_reduce_add_epi32(_mm512_add_epi32(first, second)));
    block.magic[at] = scale * float_of_integers;
}

/// A k-block's 32 values, whose halves are `low` and `high`, to the place `at` of the block.
void store_k_block(__m128i low, __m128i high, float scale, const QuantizedBlock& block, size_t at,
                   int move) {
    // Bytes have finite sums, whatever is in the row.
    const __m128i zero = _mm_setzero_si128(), one = _mm_set1_epi8(1);
    const __m128i sum = _mm_dpbusd_epi32(_mm_dpbusd_epi32(zero, one, low), one, high);
    auto* out = reinterpret_cast<__m128i*>(block.values + at * k_block);
    __m128i correction = zero;
    if (block.corrections) {
        constexpr auto paired_fours = __mmask8((1u << (paired_places / 4)) - 1);
        const __m128i moves = _mm_set1_epi8(char(move));
        low = _mm_mask_blend_epi32(paired_fours, low, _mm_add_epi8(low, moves));
        const __m128i moved = _mm_add_epi8(high, moves);
        const __m128i raised = _mm_add_epi8(moved, _mm_set1_epi8(120));
        correction =
            _mm_maskz_sub_epi32(paired_fours, _mm_dpbusd_epi32(zero, _mm_set1_epi8(8), moved),
                                _mm_dpbusd_epi32(zero, raised, low));
        high = _mm_mask_blend_epi32(paired_fours, high, raised);
    }
    _mm_storeu_si128(out, low);
    _mm_storeu_si128(out + 1, high);
    const Sums sums = sums_of(sum, correction);
    block.scales[at] = scale;
    block.sums[at] = scale * float(sums.a);
    if (block.corrections) {
        block.corrections[at] = sums.b;
        block.moves[at] = _mm_cvtsi128_si32(_mm_set1_epi8(char(-move)));
    }
}

/// x' / scale of half a k-block.
__m512i rounded(__m512 half, float factor) {
    return _mm512_cvtps_epi32(_mm512_mul_ps(half, _mm512_set1_ps(factor)));
}

void quantize_wide(__m512 low, __m512 high, const QuantizedBlock& block, size_t at) {
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    const __m512i largest =
        _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(low), magnitude),
                         _mm512_and_si512(_mm512_castps_si512(high), magnitude));
    const auto [factor, scale] = wide_scaling(_mm512_reduce_max_epu32(largest));
    store_wide_k_block(rounded(low, factor), rounded(high, factor), scale, block, at);
}

void quantize_bytes(__m512 low, __m512 high, const QuantizedBlock& block, size_t at) {
    const float highest = _mm512_reduce_max_ps(_mm512_max_ps(low, high));
    const float lowest = _mm512_reduce_min_ps(_mm512_min_ps(low, high));
    const auto [factor, scale] = byte_scaling(highest, lowest);
    store_k_block(_mm512_cvtepi32_epi8(rounded(low, factor)),
                  _mm512_cvtepi32_epi8(rounded(high, factor)), scale, block, at,
                  move_of(highest * factor, lowest * factor));
}

void quantize(const float* x, size_t stride, size_t k_block_begin, size_t k,
              const QuantizedBlock& block) {
    const auto store = block.wide() ? quantize_wide : quantize_bytes;
    for (size_t c = k_block_begin; c * k_block < k; ++c)
        for (size_t r = 0; r < block.rows; ++r) {
            const float* in = x + r * stride + (c - k_block_begin) * k_block;
            const size_t left = k - c * k_block;
            const __m512 low = Avx512::load(in, Avx512::mask(left));
            const __m512 high =
                left > 16 ? Avx512::load(in + 16, Avx512::mask(left - 16)) : _mm512_setzero_ps();
            store(low, high, block, c * block.stride + r);
        }
}

/// Sums of integers, one for each row. Few rows have two, because a product waits for the one
/// before it in its sum.
template <size_t rows>
struct Dots {
    static constexpr bool two = rows <= 4;
    __m512i first[rows], second[rows];

    /// The products of fours of weights with fours of each row's activations.
    [[gnu::always_inline]] void add(__m512i weights, const int8_t* x, size_t value_bytes,
                                    bool to_second) {
        auto& sums = to_second && two ? second : first;
#pragma GCC unroll 8
        for (size_t r = 0; r < rows; ++r)
            sums[r] =
                _mm512_dpbusd_epi32(sums[r], weights, Avx512::broadcast_word(x + r * value_bytes));
    }
};

/// The values of 64 nibbles.
template <PackedType type>
[[gnu::always_inline]] inline __m512i values_of(__m512i nibbles) {
    if (type == PackedType::u4) return nibbles;
    const auto* table = reinterpret_cast<const __m128i*>(f4e2m1_values);
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(table)), nibbles);
}

/// The products of a k-block's weights with 32 bytes of each row. Rows take turns, so that an
/// instruction seldom waits for the one before it.
template <PackedType type, size_t rows>
[[gnu::always_inline]] inline void add_bytes(const uint8_t* in, const int8_t* x, size_t value_bytes,
                                             Dots<rows>& dots) {
    const __m512i low_nibble = _mm512_set1_epi8(15);
    constexpr size_t loads = size_t(bits_of(type));
#pragma GCC unroll 8
    for (size_t j = 0; j < loads; ++j) {
        const __m512i loaded = _mm512_loadu_si512(in + 64 * j);
        if (type == PackedType::u8) {
            dots.add(loaded, x + 4 * j, value_bytes, j % 2);
            continue;
        }
        const __m512i high = _mm512_and_si512(_mm512_srli_epi16(loaded, 4), low_nibble);
        const __m512i low = _mm512_and_si512(loaded, low_nibble);
        dots.add(values_of<type>(low), x + 4 * j, value_bytes, false);
        dots.add(values_of<type>(high), x + 16 + 4 * j, value_bytes, true);
    }
}

/// The products of a k-block of u4 with wide rows: three products for two places.
template <size_t rows>
[[gnu::always_inline]] inline void add_wide(const uint8_t* in, const int8_t* x, Dots<rows>& dots) {
    const __m512i low_nibble = _mm512_set1_epi8(15), high_nibble = _mm512_set1_epi8(-16);
#pragma GCC unroll 4
    for (size_t j = 0; j < 4; ++j, x += 4) {
        const __m512i both = _mm512_loadu_si512(in + 64 * j);
        const __m512i low_16 = _mm512_and_si512(_mm512_slli_epi16(both, 4), high_nibble);
        const __m512i high = _mm512_and_si512(_mm512_srli_epi16(both, 4), low_nibble);
        dots.add(low_16, x, wide_k_block_bytes, false);
        dots.add(both, x + 16, wide_k_block_bytes, true);
        dots.add(high, x + 32, wide_k_block_bytes, false);
    }
}

/// The products of a k-block with each row, where they begin with first[r].
template <PackedType type, bool wide, size_t rows>
[[gnu::always_inline]] inline void multiply_k_block(const uint8_t* in, const int8_t* x,
                                                    __m512i (&first)[rows]) {
    Dots<rows> dots;
#pragma GCC unroll 8
    for (size_t r = 0; r < rows; ++r) {
        dots.first[r] = first[r];
        dots.second[r] = _mm512_setzero_si512();
    }
    if (type == PackedType::u4 && wide) {
        add_wide(in, x, dots);
    } else if (wide) {
        add_bytes<type>(in, x, wide_k_block_bytes, dots);
#pragma GCC unroll 8
        for (size_t r = 0; r < rows; ++r) {
            dots.first[r] = _mm512_slli_epi32(dots.first[r], 4);
            dots.second[r] = _mm512_slli_epi32(dots.second[r], 4);
        }
        add_bytes<type>(in, x + 16, wide_k_block_bytes, dots);
    } else {
        add_bytes<type>(in, x, k_block, dots);
    }
#pragma GCC unroll 8
    for (size_t r = 0; r < rows; ++r)
        first[r] = dots.two ? _mm512_add_epi32(dots.first[r], dots.second[r]) : dots.first[r];
}

/// One tile times `rows` rows, whose sums lie in as many registers.
template <PackedType type, bool wide, size_t rows>
void multiply(const PackedLinear& weights, const uint8_t* in, const QuantizedBlock& block,
              const TileOutput& output) {
    const auto columns = __mmask16((1u << output.columns) - 1);
    __m512 sums[rows];
#pragma GCC unroll 8
    for (size_t r = 0; r < rows; ++r)
        sums[r] = output.initial
                      ? _mm512_maskz_loadu_ps(columns, output.initial + r * output.stride)
                      : _mm512_setzero_ps();

    // Where products of a k-block do not exceed 2^22, they are added to a float's bits.
    constexpr bool has_magic = type == PackedType::u4 && wide;
    const size_t k_blocks = weights.k_blocks(), per_group = weights.k_blocks_per_group();
    const size_t scale_bytes = weights.scale_bytes(), offset_bytes = weights.offset_bytes();
    const PackedLinear::Scale scale_form = weights.scale();
    const int8_t* x = block.values;
    const float *x_scales = has_magic ? block.magic : block.scales, *x_sums = block.sums;
    for (size_t c = 0; c < k_blocks;) {
        const __m512 scales = simd::load_scales<Avx512>(in, scale_form);
        const __m512 minima = simd::load_minima<Avx512>(weights, in + scale_bytes, 0, scales);
        in += scale_bytes + offset_bytes;
        const size_t end = std::min(c + per_group, k_blocks);
        for (; c < end; ++c) {
            __m512i dots[rows];
#pragma GCC unroll 8
            for (size_t r = 0; r < rows; ++r)
                dots[r] = has_magic ? _mm512_castps_si512(_mm512_set1_ps(x_scales[r]))
                                    : _mm512_setzero_si512();
            simd::fetch_ahead<type>(in);
            multiply_k_block<type, wide>(in, x, dots);
#pragma GCC unroll 8
            for (size_t r = 0; r < rows; ++r) {
                const __m512 x_scale = _mm512_set1_ps(x_scales[r]);
                if (has_magic)
                    sums[r] = _mm512_fmadd_ps(_mm512_sub_ps(_mm512_castsi512_ps(dots[r]), x_scale),
                                              scales, sums[r]);
                else
                    sums[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[r]),
                                              _mm512_mul_ps(scales, x_scale), sums[r]);
                sums[r] = _mm512_fmadd_ps(minima, _mm512_set1_ps(x_sums[r]), sums[r]);
            }
            in += 64 * bits_of(type);
            x += rows * (wide ? wide_k_block_bytes : k_block);
            x_scales += rows;
            x_sums += rows;
        }
    }
#pragma GCC unroll 8
    for (size_t r = 0; r < rows; ++r)
        _mm512_mask_storeu_ps(output.output + r * output.stride, columns, sums[r]);
}

using Multiply = decltype(LinearKernels::multiply);

/// multiply() by what it is a template over: the tile takes so little that comparing would count.
template <PackedType type, size_t... I>
Multiply multiply_by_rows(const QuantizedBlock& block, std::index_sequence<I...>) {
    static constexpr Multiply calls[][sizeof...(I)] = {{multiply<type, false, I + 1>...},
                                                       {multiply<type, true, I + 1>...}};
    return calls[block.wide()][block.rows - 1];
}

void multiply_any(const PackedLinear& weights, const uint8_t* in, const QuantizedBlock& block,
                  const TileOutput& output) {
    with_type(weights.type(), [&](auto type) {
        multiply_by_rows<type>(block, std::make_index_sequence<max_block_rows>())(weights, in,
                                                                                  block, output);
    });
}

/// A k-block's weights for the paired product (QuantizedBlock).
struct PairedKBlock {
    __m512i low[4], high[4];  // of the first three, the first and the second factors
    __m512i constant;         // minus the sum of what is the weights' alone
    __m512i sums;             // of the weights in pairs, by byte: 6 of up to 15

    explicit PairedKBlock(const uint8_t* in) {
        const __m512i low_nibble = _mm512_set1_epi8(15), shift = _mm512_set1_epi8(120);
        __m512i alone = _mm512_setzero_si512();
        sums = _mm512_setzero_si512();
#pragma GCC unroll 4
        for (size_t j = 0; j < 4; ++j) {
            const __m512i loaded = _mm512_loadu_si512(in + 64 * j);
            low[j] = _mm512_and_si512(loaded, low_nibble);
            high[j] = _mm512_and_si512(_mm512_srli_epi16(loaded, 4), low_nibble);
            if (4 * j >= paired_places) continue;
            sums = _mm512_add_epi8(sums, _mm512_add_epi8(low[j], high[j]));
            high[j] = _mm512_sub_epi8(high[j], _mm512_set1_epi8(8));
            alone = _mm512_dpbusd_epi32(alone, _mm512_add_epi8(low[j], shift), high[j]);
        }
        constant = _mm512_sub_epi32(_mm512_setzero_si512(), alone);
    }

    /// The inner products with one row's 32 values.
    __m512i dot(const int8_t* x, int32_t correction, int32_t move) const {
        __m512i sum = _mm512_add_epi32(constant, _mm512_set1_epi32(correction));
        sum = _mm512_dpbusd_epi32(sum, sums, _mm512_set1_epi32(move));
#pragma GCC unroll 4
        for (size_t j = 0; j < 4; ++j) {
            const __m512i first = Avx512::broadcast_word(x + 4 * j),
                          second = Avx512::broadcast_word(x + 4 * (j + 4));
            if (4 * j < paired_places) {
                // Sums of bytes up to 255 carry nothing, so those of fours take their place.
                sum = _mm512_dpbusd_epi32(sum, _mm512_add_epi32(low[j], second),
                                          _mm512_add_epi8(high[j], first));
            } else {
                sum = _mm512_dpbusd_epi32(sum, low[j], first);
                sum = _mm512_dpbusd_epi32(sum, high[j], second);
            }
        }
        return sum;
    }
};

/// The rows' sums lie in the L1 cache: a k-block that is unpacked once serves them all.
void multiply_pairs(const PackedLinear& weights, const uint8_t* in, const QuantizedBlock& block,
                    const TileOutput& output) {
    constexpr size_t lanes = PackedLinear::tile_rows;
    const auto columns = __mmask16((1u << output.columns) - 1);
    alignas(64) float sums[max_paired_rows * lanes];
    for (size_t r = 0; r < block.rows; ++r)
        _mm512_store_ps(sums + r * lanes,
                        output.initial
                            ? _mm512_maskz_loadu_ps(columns, output.initial + r * output.stride)
                            : _mm512_setzero_ps());

    const size_t k_blocks = weights.k_blocks(), per_group = weights.k_blocks_per_group();
    for (size_t c = 0; c < k_blocks;) {
        const __m512 scales = simd::load_scales<Avx512>(in, weights.scale());
        const __m512 minima =
            simd::load_minima<Avx512>(weights, in + weights.scale_bytes(), 0, scales);
        in += weights.scale_bytes() + weights.offset_bytes();
        const size_t end = std::min(c + per_group, k_blocks);
        for (; c < end; ++c, in += weights.k_block_bytes()) {
            const PairedKBlock values(in);
            const int8_t* x = block.values + c * block.stride * k_block;
            const float* x_scales = block.scales + c * block.stride;
            const float* x_sums = block.sums + c * block.stride;
            const int32_t* corrections = block.corrections + c * block.stride;
            const int32_t* moves = block.moves + c * block.stride;
            for (size_t r = 0; r < block.rows; ++r) {
                const __m512 dot =
                    _mm512_cvtepi32_ps(values.dot(x + r * k_block, corrections[r], moves[r]));
                const __m512 scale = _mm512_mul_ps(scales, _mm512_set1_ps(x_scales[r]));
                __m512 sum = _mm512_fmadd_ps(dot, scale, _mm512_load_ps(sums + r * lanes));
                sum = _mm512_fmadd_ps(minima, _mm512_set1_ps(x_sums[r]), sum);
                _mm512_store_ps(sums + r * lanes, sum);
            }
        }
    }
    for (size_t r = 0; r < block.rows; ++r)
        _mm512_mask_storeu_ps(output.output + r * output.stride, columns,
                              _mm512_load_ps(sums + r * lanes));
}

}  // namespace

LinearKernels linear_kernels() {
    return {quantize,
            multiply_any,
            multiply_pairs,
            simd::rms_norm<Avx512>,
            simd::swiglu<Avx512>,
            simd::rotate<Avx512>,
            simd::inner_products<Avx512>};
}

}  // namespace pagewheel::kernels::avx512
