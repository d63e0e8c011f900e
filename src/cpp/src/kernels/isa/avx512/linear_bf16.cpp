// Linear layers in bf16 with AVX512_BF16.
#include "kernels/bf16_kernels.hpp"

#include <immintrin.h>

#include <cstring>
#include <utility>

#include "kernels/isa/avx512/kernels.hpp"
#include "kernels/isa/avx512/vectors.hpp"
#include "kernels/simd/linear.hpp"

namespace pagewheel::kernels::avx512 {
namespace {

constexpr size_t k_block = PackedLinear::k_block;
constexpr size_t lanes = PackedLinear::tile_rows;

/// Rows and weight tiles that are multiplied at once: the sums take 24 of the 32 registers, so that
/// two products a cycle of six cycles each find enough of them.
constexpr size_t most_rows = 6, most_tiles = 4;

void pack_row(const float* x, size_t k, size_t tile_rows, uint16_t* out) {
    for (size_t i = 0; i < k; i += k_block, out += tile_rows * row_block) {
        const size_t left = k - i;
        const __m512 high = left > lanes ? Avx512::load(x + i + lanes, Avx512::mask(left - lanes))
                                         : _mm512_setzero_ps();
        _mm512_storeu_si512(out, Avx512::to_bf16(Avx512::load(x + i, Avx512::mask(left)), high));
    }
}

/// Eight outputs twice each, side by side: of a pair along k, the place of the first and of the
/// second. `half` 0 is the tile's first eight outputs, 1 the others.
__m512i twice(size_t half) {
    const __m512i first = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return _mm512_add_epi32(first, _mm512_set1_epi32(int(8 * half)));
}

/// Shifts that bring the bits `first` and the bits `second` of a word, each in its lane, down.
__m512i shifts(int first, int second) {
    return _mm512_set1_epi64(int64_t(uint64_t(uint32_t(second)) << 32 | uint32_t(first)));
}

/// A tile's scales and minima of one group, and how values become weights.
template <PackedType type>
struct Group {
    __m512 scales[2], minima[2];

    Group(const PackedLinear& weights, const uint8_t* in) {
        const __m512 scale = simd::load_scales<Avx512>(in, weights.scale());
        const __m512 minimum =
            simd::load_minima<Avx512>(weights, in + weights.scale_bytes(), 0, scale);
        for (size_t half = 0; half < 2; ++half) {
            scales[half] = _mm512_permutexvar_ps(twice(half), scale);
            minima[half] = _mm512_permutexvar_ps(twice(half), minimum);
        }
    }

    /// A pair along k of all outputs.
    void store(__m512 first_half, __m512 second_half, uint16_t* out) const {
        const __m512 low = _mm512_fmadd_ps(first_half, scales[0], minima[0]);
        const __m512 high = _mm512_fmadd_ps(second_half, scales[1], minima[1]);
        _mm512_storeu_si512(out, Avx512::to_bf16(low, high));
    }

    void unpack(const uint8_t* in, uint16_t* out) const {
        type == PackedType::u8 ? unpack_bytes(in, out) : unpack_nibbles(in, out);
    }

    /// A k-block of 4 bits. The values' floats come out of a table, whose index is the low four
    /// bits.
    void unpack_nibbles(const uint8_t* in, uint16_t* out) const {
        const __m512 floats =
            type == PackedType::u4 ? Avx512::iota() : Avx512::load_u8(f4e2m1_values);
        const __m512i first = twice(0), second = twice(1);
        for (size_t j = 0; j < 4; ++j) {
            const __m512i loaded = _mm512_loadu_si512(in + 64 * j);
            const __m512i halves[2] = {_mm512_permutexvar_epi32(first, loaded),
                                       _mm512_permutexvar_epi32(second, loaded)};
            const auto store_pair = [&](__m512i shift, size_t pair) PAGEWHEEL_INLINE {
                store(_mm512_permutexvar_ps(_mm512_srlv_epi32(halves[0], shift), floats),
                      _mm512_permutexvar_ps(_mm512_srlv_epi32(halves[1], shift), floats),
                      out + pair * 2 * lanes);
            };
            store_pair(shifts(0, 8), 2 * j);
            store_pair(shifts(16, 24), 2 * j + 1);
            store_pair(shifts(4, 12), 8 + 2 * j);
            store_pair(shifts(20, 28), 8 + 2 * j + 1);
        }
    }

    /// A k-block of 8 bits.
    void unpack_bytes(const uint8_t* in, uint16_t* out) const {
        const __m512i first = twice(0), second = twice(1), byte = _mm512_set1_epi32(255);
        for (size_t j = 0; j < 8; ++j) {
            const __m512i loaded = _mm512_loadu_si512(in + 64 * j);
            const __m512i halves[2] = {_mm512_permutexvar_epi32(first, loaded),
                                       _mm512_permutexvar_epi32(second, loaded)};
            for (size_t pair = 0; pair < 2; ++pair) {
                const __m512i shift = shifts(int(16 * pair), int(16 * pair + 8));
                const auto floats = [&](__m512i half) PAGEWHEEL_INLINE {
                    return _mm512_cvtepi32_ps(
                        _mm512_and_si512(_mm512_srlv_epi32(half, shift), byte));
                };
                store(floats(halves[0]), floats(halves[1]), out + (2 * j + pair) * 2 * lanes);
            }
        }
    }
};

/// `rows` rows of one row tile times `tiles` weight tiles, which lie `stride` apart.
template <size_t rows, size_t tiles>
void multiply_block(const uint16_t* x, const uint16_t* w, size_t stride, size_t k_blocks,
                    const Bf16Output& output) {
    const __mmask16 last = Avx512::mask(output.columns - (tiles - 1) * lanes);
    const auto mask = [&](size_t p) { return p + 1 < tiles ? __mmask16(0xffff) : last; };
    __m512 sums[rows][tiles];
    unrolled_grid<rows, tiles>([&](auto r, auto p) PAGEWHEEL_INLINE {
        const float* from = output.initial + r * output.initial_stride + p * lanes;
        sums[r][p] = output.initial ? _mm512_maskz_loadu_ps(mask(p), from) : _mm512_setzero_ps();
    });
    for (size_t c = 0; c < k_blocks; ++c, x += most_rows * row_block, w += tile_block) {
#pragma GCC unroll 4
        for (size_t pair = 0; pair < k_block / 2; ++pair) {
            add_outer_product<Avx512::add_bf16_products>(
                sums,
                [&](auto r) PAGEWHEEL_INLINE {
                    return Avx512::broadcast_word(x + r * row_block + pair * 2);
                },
                [&](auto p) PAGEWHEEL_INLINE {
                    return _mm512_loadu_si512(w + p * stride + pair * 2 * lanes);
                });
        }
    }
    unrolled_grid<rows, tiles>([&](auto r, auto p) PAGEWHEEL_INLINE {
        _mm512_mask_storeu_ps(output.output + r * output.output_stride + p * lanes, mask(p),
                              sums[r][p]);
    });
}

using MultiplyBlock = void (*)(const uint16_t*, const uint16_t*, size_t, size_t, const Bf16Output&);

/// multiply_block() of 1 + i / most_tiles rows and 1 + i % most_tiles tiles.
template <size_t... i>
MultiplyBlock block_of(size_t rows, size_t tiles, std::index_sequence<i...>) {
    static constexpr MultiplyBlock calls[] = {
        multiply_block<1 + i / most_tiles, 1 + i % most_tiles>...};
    return calls[(rows - 1) * most_tiles + tiles - 1];
}

void multiply(const Bf16Product& product) {
    const Bf16Output& all = product.output;
    for (size_t row = 0, t = 0; row < product.row_count; row += most_rows, ++t)
        for (size_t tile = 0; tile < product.tile_count; tile += most_tiles) {
            const size_t rows = std::min(most_rows, product.row_count - row);
            const size_t tiles = std::min(most_tiles, product.tile_count - tile);
            const size_t column = tile * lanes;
            Bf16Output output = all;
            output.columns = std::min(tiles * lanes, all.columns - column);
            output.output += row * all.output_stride + column;
            if (all.initial) output.initial += row * all.initial_stride + column;
            block_of(rows, tiles, std::make_index_sequence<most_rows * most_tiles>())(
                product.rows + t * product.tile_stride,
                product.weights + tile * product.weight_stride, product.weight_stride,
                product.k_blocks, output);
        }
}

}  // namespace

void unpack_tile(const PackedLinear& weights, size_t tile, size_t begin, size_t end,
                 uint16_t* out) {
    if (weights.is_bf16()) {
        std::memcpy(out, weights.numbers(tile, begin), (end - begin) * tile_block * sizeof *out);
        return;
    }
    with_type(weights.type(), [&](auto type) {
        simd::unpack_k_blocks<Group<type>>(weights, tile, begin, end, out);
    });
}

Bf16Kernels bf16_kernels() {
    Bf16Kernels kernels;
    kernels.tile_rows = most_rows;
    kernels.item_tiles = most_tiles;
    kernels.most_rows = 512;
    kernels.range_k_blocks = 64;
    kernels.pack_row = pack_row;
    kernels.unpack = unpack_tile;
    kernels.run = run_by_groups;
    kernels.multiply = multiply;
    return kernels;
}

}  // namespace pagewheel::kernels::avx512
