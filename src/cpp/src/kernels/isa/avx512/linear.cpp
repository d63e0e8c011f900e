// Linear layers with VNNI.
#include <immintrin.h>

#include <cstring>

#include "kernels/isa/avx512/kernels.hpp"
#include "kernels/isa/avx512/vectors.hpp"
#include "kernels/simd/linear.hpp"

namespace pagewheel::kernels::avx512 {
namespace {

constexpr size_t k_block = PackedLinear::k_block, lanes = PackedLinear::tile_rows;

template <size_t count>
void store_bytes(const __m512i (&numbers)[count], int8_t* out) {
    for (size_t i = 0; i < count; ++i)
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out) + i, _mm512_cvtepi32_epi8(numbers[i]));
}

/// Values of a k-block's first and second half, -1904..1904 if they are finite.
void store_wide(__m512i first, __m512i second, int8_t* out) {
    // The byte that both share: 16 times it is within -128..127 of the second.
    const __m512i lowest = _mm512_srai_epi32(_mm512_sub_epi32(second, _mm512_set1_epi32(112)), 4);
    const __m512i shared = _mm512_add_epi32(
        lowest, _mm512_and_si512(_mm512_sub_epi32(first, lowest), _mm512_set1_epi32(15)));
    store_bytes({_mm512_srai_epi32(_mm512_sub_epi32(first, shared), 4), shared,
                 _mm512_sub_epi32(second, _mm512_slli_epi32(shared, 4))},
                out);
}

/// x' / scale of half a k-block.
__m512i rounded(__m512 half, float factor) {
    return _mm512_cvtps_epi32(_mm512_mul_ps(half, _mm512_set1_ps(factor)));
}

void quantize_k_block(__m512 low, __m512 high, const QuantizedBlock& block, size_t at) {
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    const uint32_t largest = _mm512_reduce_max_epu32(
        _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(low), magnitude),
                         _mm512_and_si512(_mm512_castps_si512(high), magnitude)));
    const auto [factor, scale] = block.wide() ? wide_scaling(largest) : byte_scaling(largest);
    const __m512i first = rounded(low, factor), second = rounded(high, factor);
    if (block.wide())
        store_wide(first, second, block.values + at * wide_k_block_bytes);
    else
        store_bytes({first, second}, block.values + at * k_block);
    block.scales[at] = scale;
    block.sums[at] = scale * float(_mm512_reduce_add_epi32(_mm512_add_epi32(first, second)));
    if (block.wide()) block.magic[at] = scale * float_of_integers;
}

void quantize(const float* x, size_t stride, size_t k_block_begin, size_t k,
              const QuantizedBlock& block) {
    for (size_t c = k_block_begin; c * k_block < k; ++c)
        for (size_t r = 0; r < block.rows; ++r) {
            const float* in = x + r * stride + (c - k_block_begin) * k_block;
            const size_t left = k - c * k_block;
            const __m512 low = Avx512::load(in, Avx512::mask(left));
            const __m512 high =
                left > 16 ? Avx512::load(in + 16, Avx512::mask(left - 16)) : _mm512_setzero_ps();
            quantize_k_block(low, high, block, c * block.stride + r);
        }
}

/// Rows and tiles that are multiplied at once: integers and sums take 24 of the 32 registers, and
/// what is loaded of a row serves both tiles.
constexpr size_t most_rows = 6, most_tiles = 2;

/// sum += products of fours of u8 with fours of s8. As assembly, like the products of attention,
/// because GCC 12 copies the accumulator of the intrinsic around.
[[gnu::always_inline]] inline void add_products(__m512i& sum, __m512i a, __m512i b) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
}

/// sum += a * b, for the same reason.
[[gnu::always_inline]] inline void add_product(__m512& sum, __m512 a, __m512 b) {
    asm("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
}

/// The products of fours of each tile's weights, weights(t), with fours of each row's activations.
/// Rows take turns, so that an instruction seldom waits for the one before it.
template <size_t rows, size_t tiles, class Weights>
[[gnu::always_inline]] inline void add_fours(__m512i (&sums)[rows][tiles], const Weights& weights,
                                             const int8_t* x, size_t value_bytes) {
    add_outer_product<add_products>(
        sums, [&](auto r) PAGEWHEEL_INLINE { return Avx512::broadcast_word(x + r * value_bytes); },
        weights);
}

/// 64 bytes of each of some tiles, which lie `tile_bytes` apart.
template <size_t tiles>
struct Loaded {
    __m512i bytes[tiles];

    Loaded(const uint8_t* in, size_t tile_bytes) {
        unrolled<tiles>(
            [&](auto t) PAGEWHEEL_INLINE { bytes[t] = _mm512_loadu_si512(in + t * tile_bytes); });
    }
    auto all() const {
        return [this](auto t) PAGEWHEEL_INLINE { return bytes[t]; };
    }
    auto low_nibbles() const {
        return [this](auto t) PAGEWHEEL_INLINE { return _mm512_andnot_si512(upper(), bytes[t]); };
    }
    auto low_nibbles_times_16() const {
        return [this](auto t) PAGEWHEEL_INLINE { return _mm512_slli_epi16(low_nibbles()(t), 4); };
    }
    auto high_nibbles() const {
        return [this](auto t) PAGEWHEEL_INLINE {
            return _mm512_srli_epi16(_mm512_and_si512(upper(), bytes[t]), 4);
        };
    }

private:
    static __m512i upper() { return _mm512_set1_epi8(-16); }
};

/// The values of nibbles(t).
template <PackedType type, class Nibbles>
[[gnu::always_inline]] inline auto values_of(const Nibbles& nibbles) {
    return [=](auto t) PAGEWHEEL_INLINE {
        if constexpr (type == PackedType::u4) return nibbles(t);
        const auto* table = reinterpret_cast<const __m128i*>(f4e2m1_values);
        return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(table)), nibbles(t));
    };
}

/// The products of a k-block's weights with 32 bytes of each row, to two sums by turns.
template <PackedType type, size_t rows, size_t tiles>
[[gnu::always_inline]] inline void add_bytes(const uint8_t* in, size_t tile_bytes, const int8_t* x,
                                             size_t value_bytes, __m512i (&sums)[rows][tiles],
                                             __m512i (&others)[rows][tiles]) {
    constexpr size_t loads = size_t(bits_of(type));
    unrolled<loads>([&](auto j) PAGEWHEEL_INLINE {
        const Loaded<tiles> loaded(in + 64 * j, tile_bytes);
        if constexpr (type == PackedType::u8) {
            add_fours(j % 2 ? others : sums, loaded.all(), x + 4 * j, value_bytes);
        } else {
            add_fours(sums, values_of<type>(loaded.low_nibbles()), x + 4 * j, value_bytes);
            add_fours(others, values_of<type>(loaded.high_nibbles()), x + 16 + 4 * j, value_bytes);
        }
    });
}

/// The products of a k-block of u4 with wide rows: three products for two places.
template <size_t rows, size_t tiles>
[[gnu::always_inline]] inline void add_wide(const uint8_t* in, size_t tile_bytes, const int8_t* x,
                                            __m512i (&sums)[rows][tiles],
                                            __m512i (&others)[rows][tiles]) {
    unrolled<4>([&](auto j) PAGEWHEEL_INLINE {
        const Loaded<tiles> loaded(in + 64 * j, tile_bytes);
        add_fours(sums, loaded.low_nibbles_times_16(), x + 4 * j, wide_k_block_bytes);
        add_fours(others, loaded.all(), x + 16 + 4 * j, wide_k_block_bytes);
        add_fours(sums, loaded.high_nibbles(), x + 32 + 4 * j, wide_k_block_bytes);
    });
}

/// The products of a k-block of each tile with each row, added to `sums`. Few rows have a second
/// sum, because a product waits for the one before it in its sum.
template <PackedType type, bool wide, size_t rows, size_t tiles>
[[gnu::always_inline]] inline void multiply_k_block(const uint8_t* in, size_t tile_bytes,
                                                    const int8_t* x, __m512i (&sums)[rows][tiles]) {
    constexpr bool two = rows * tiles <= 4;
    __m512i second[rows][tiles];
    unrolled_grid<rows, tiles>([&](auto r, auto t)
                                   PAGEWHEEL_INLINE { second[r][t] = _mm512_setzero_si512(); });
    auto& others = two ? second : sums;
    if constexpr (type == PackedType::u4 && wide) {
        add_wide(in, tile_bytes, x, sums, others);
    } else if constexpr (wide) {
        add_bytes<type>(in, tile_bytes, x, wide_k_block_bytes, sums, others);
        unrolled_grid<rows, tiles>([&](auto r, auto t) PAGEWHEEL_INLINE {
            sums[r][t] = _mm512_slli_epi32(sums[r][t], 4);
            if (two) second[r][t] = _mm512_slli_epi32(second[r][t], 4);
        });
        add_bytes<type>(in, tile_bytes, x + 16, wide_k_block_bytes, sums, others);
    } else {
        add_bytes<type>(in, tile_bytes, x, k_block, sums, others);
    }
    if (!two) return;
    unrolled_grid<rows, tiles>([&](auto r, auto t) PAGEWHEEL_INLINE {
        sums[r][t] = _mm512_add_epi32(sums[r][t], second[r][t]);
    });
}

/// `tiles` tiles, one after the other in memory, times rows [first, first + rows) of the block. The
/// structs are not copied: what was just written to them in parts would be read as a whole, which
/// waits until all stores before it are in the cache.
template <PackedType type, bool wide, size_t rows, size_t tiles>
void multiply(const PackedLinear& weights, const uint8_t* in, const QuantizedBlock& block,
              size_t first, const TileOutput& output) {
    const size_t at = first * output.stride;
    const __mmask16 last = Avx512::mask(output.columns - (tiles - 1) * lanes);
    const auto mask = [&](size_t t) { return t + 1 < tiles ? __mmask16(0xffff) : last; };
    __m512 sums[rows][tiles];
    unrolled_grid<rows, tiles>([&](auto r, auto t) PAGEWHEEL_INLINE {
        const float* from = output.initial + at + r * output.stride + t * lanes;
        sums[r][t] = output.initial ? _mm512_maskz_loadu_ps(mask(t), from) : _mm512_setzero_ps();
    });

    // Where products of a k-block do not exceed 2^22, they are added to a float's bits.
    constexpr bool has_magic = type == PackedType::u4 && wide;
    const size_t k_blocks = weights.k_blocks(), per_group = weights.k_blocks_per_group();
    const size_t scale_bytes = weights.scale_bytes(), tile_bytes = weights.tile_bytes();
    const size_t head_bytes = scale_bytes + weights.offset_bytes();
    const PackedLinear::Scale scale_form = weights.scale();
    const int8_t* x = block.values + first * block.value_bytes();
    const float* x_scales = (has_magic ? block.magic : block.scales) + first;
    const float* x_sums = block.sums + first;
    const uint8_t *head = nullptr, *tile_end = in + tile_bytes;  // head: of the group
    // One loop, whose body is a k-block whatever a group is: GCC keeps sums out of the registers
    // of a loop inside another.
    for (size_t c = 0, left = 0; c < k_blocks; ++c, --left) {
        if (left == 0) {
            head = in;
            in += head_bytes;
            left = per_group;
        }
        __m512i dots[rows][tiles];
        unrolled_grid<rows, tiles>([&](auto r, auto t) PAGEWHEEL_INLINE {
            dots[r][t] = has_magic ? _mm512_castps_si512(_mm512_set1_ps(x_scales[r]))
                                   : _mm512_setzero_si512();
        });
        // Past the end of the first tile come the next ones after the last.
        const uint8_t* ahead = in + simd::fetch_distance / tiles;
        if (ahead >= tile_end) ahead += (tiles - 1) * tile_bytes;
        for (size_t t = 0; t < tiles; ++t) simd::fetch<type>(ahead + t * tile_bytes);
        multiply_k_block<type, wide>(in, tile_bytes, x, dots);
        // Late, because a k-block's products take all registers.
        __m512 scales[tiles], minima[tiles];
        unrolled<tiles>([&](auto t) PAGEWHEEL_INLINE {
            const uint8_t* of_tile = head + t * tile_bytes;
            scales[t] = simd::load_scales<Avx512>(of_tile, scale_form);
            minima[t] = simd::load_minima<Avx512>(weights, of_tile + scale_bytes, 0, scales[t]);
        });
        unrolled_grid<rows, tiles>([&](auto r, auto t) PAGEWHEEL_INLINE {
            const __m512 x_scale = _mm512_set1_ps(x_scales[r]);
            if (has_magic)
                add_product(sums[r][t], _mm512_sub_ps(_mm512_castsi512_ps(dots[r][t]), x_scale),
                            scales[t]);
            else
                add_product(sums[r][t], _mm512_cvtepi32_ps(dots[r][t]),
                            _mm512_mul_ps(scales[t], x_scale));
            add_product(sums[r][t], minima[t], _mm512_set1_ps(x_sums[r]));
        });
        in += 64 * bits_of(type);
        x += block.stride * (wide ? wide_k_block_bytes : k_block);
        x_scales += block.stride;
        x_sums += block.stride;
    }
    unrolled_grid<rows, tiles>([&](auto r, auto t) PAGEWHEEL_INLINE {
        _mm512_mask_storeu_ps(output.output + at + r * output.stride + t * lanes, mask(t),
                              sums[r][t]);
    });
}

using Multiply = void (*)(const PackedLinear&, const uint8_t*, const QuantizedBlock&, size_t first,
                          const TileOutput&);

/// multiply() of 1 + i / most_tiles rows and 1 + i % most_tiles tiles: they take so little that
/// comparing would count.
template <PackedType type, size_t... i>
Multiply multiply_by_rows(bool wide, size_t rows, size_t tiles, std::index_sequence<i...>) {
    static constexpr Multiply calls[][sizeof...(i)] = {
        {multiply<type, false, 1 + i / most_tiles, 1 + i % most_tiles>...},
        {multiply<type, true, 1 + i / most_tiles, 1 + i % most_tiles>...}};
    return calls[wide][(rows - 1) * most_tiles + tiles - 1];
}

void multiply_any(const PackedLinear& weights, const uint8_t* in, const QuantizedBlock& block,
                  const TileOutput& output) {
    const size_t parts = (block.rows + most_rows - 1) / most_rows;
    const size_t tiles = (output.columns + lanes - 1) / lanes;
    with_type(weights.type(), [&](auto type) {
        for (size_t i = 0; i < parts; ++i) {
            const size_t first = block.rows * i / parts, end = block.rows * (i + 1) / parts;
            multiply_by_rows<type>(block.wide(), end - first, tiles,
                                   std::make_index_sequence<most_rows * most_tiles>())(
                weights, in, block, first, output);
        }
    });
}

}  // namespace

LinearKernels linear_kernels() {
    return {quantize,
            multiply_any,
            most_tiles,
            simd::rms_norm<Avx512>,
            simd::swiglu<Avx512>,
            simd::gate<Avx512>,
            simd::rotate<Avx512>,
            simd::inner_products<Avx512>};
}

}  // namespace pagewheel::kernels::avx512
