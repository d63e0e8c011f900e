// Prefill chunks over a bf16 cache in bf16 dot products.
#pragma once

#include <immintrin.h>

#include "kernels/attention/prefill_float.hpp"
#include "kernels/isa/avx512/vectors.hpp"

namespace pagewheel::kernels::avx512 {
namespace {

/// The two matrix products of a bf16 cache with AVX512_BF16: queries and probabilities rounded to
/// bf16, sums in f32. Keys and values are read as they lie, pairs of dimensions and pairs of tokens
/// in a word. Keys that are rotated are sums of two bf16 numbers, so that rotating adds no error.
/// The instructions are assembly, so that this file is compiled for AVX-512 like the others; who
/// calls asks the processor for them.
class Bf16Products {
    static constexpr size_t L = 16, R = PrefillTile<Avx512>::group_rows;

public:
    using Tile = PrefillTile<Avx512>;
    static constexpr size_t span_tokens = 128;
    static constexpr bool rounds_to_bf16 = true;

    Bf16Products(const PrefillTile<Avx512>& tile, Scratch<Avx512>& scratch)
        : tile_(tile), unpacker_(tile.layout) {
        block_ = tile.layout.block_size;
        words_ = tile.layout.key_words();
        size_ = tile.layout.value_size;
        queries_ = scratch.take<uint32_t>(tile.groups * R * words_);
        rotated_ = scratch.take(2 * words_ * block_);
        keys_ = scratch.take<uint32_t>(2 * words_ * max_span);
        values_ = scratch.take<uint32_t>(size_ * block_ / 2);
        weights_ = scratch.take<uint16_t>(R * max_span);
    }

    void load_queries() {
        for (size_t row = 0; row < tile_.groups * R; ++row) load_query(row);
    }

    void load_span(size_t block, size_t end) {
        rotates_ = false;
        for (size_t b = block, v = 0; b < end; ++b) {
            const auto* keys = reinterpret_cast<const uint32_t*>(tile_.keys_of(b));
            const uint32_t* low = nullptr;
            if (tile_.deltas_of(b)) {
                keys = rotated_keys(b, b - block);
                low = keys + words_ * block_;
                rotates_ = true;
            }
            for (size_t lane = 0; lane < block_; lane += L, ++v) {
                key_lanes_[v] = keys + lane;
                low_lanes_[v] = low ? low + lane : nullptr;
            }
            value_blocks_[b - block] = values_of(b);
        }
    }

    void logits(size_t group, size_t begin, size_t end, float* out) const {
        for_vector_groups<4>(begin / L, end / L, [&](auto N, size_t v) PAGEWHEEL_INLINE {
            dot<N>(group, key_lanes_ + v, out + v * L);
        });
        if (!rotates_) return;
        for (size_t v = begin / L; v * L < end; ++v)
            if (low_lanes_[v]) dot<1, true>(group, low_lanes_ + v, out + v * L);
    }

    static __m512 exp2(__m512 x) { return simd::exp2_short<Avx512>(x); }

    /// Keeps the probabilities of a group's row `r` in bf16.
    class Row {
    public:
        Row(Bf16Products& products, size_t r) : to_(products.weights_ + r * max_span) {}
        __m512 put(size_t column, __m512 p) {
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(to_ + column), Avx512::to_bf16(p));
            return p;
        }
        void end() {}

    private:
        uint16_t* to_;
    };

    void weigh(size_t begin, size_t end, const float* correction, const float* factor, float* acc,
               size_t live) const {
        for_vector_groups<4>(0, padded(size_) / L, [&](auto N, size_t v) PAGEWHEEL_INLINE {
            sum<N>(begin, end, correction, factor, acc + v * L, v * L, live);
        });
    }

private:
    /// queries_ [groups][words][group_rows], pairs of dimensions.
    void load_query(size_t row) {
        uint32_t* to = queries_ + row / R * words_ * R + row % R;
        const __m512 scale = _mm512_set1_ps(tile_.config.scale * 1.44269504089f);
        const float* from = row < tile_.rows ? tile_.query(row) : nullptr;
        for (size_t word = 0; word < words_; word += 8) {
            const size_t d = 2 * word, left = from ? tile_.layout.key_size - d : 0;
            alignas(32) uint32_t pairs[8];
            const __m512 x = left ? Avx512::load(from + d, Avx512::mask(left)) : Avx512::zero();
            _mm256_store_si256(reinterpret_cast<__m256i*>(pairs),
                               Avx512::to_bf16(_mm512_mul_ps(x, scale)));
            for (size_t i = 0; i < 8 && word + i < words_; ++i, to += R) *to = pairs[i];
        }
    }

    static __m512 rounded(__m512 x) { return Avx512::bf16_to_float(Avx512::to_bf16(x)); }

    /// Keys [2][words_][block_size] of a block, rotated, and what rounding them left; in the span's
    /// place `place`.
    const uint32_t* rotated_keys(size_t block, size_t place) {
        unpacker_.keys(tile_.keys_of(block), rotated_);
        unpacker_.rotate(rotated_, tile_.config, tile_.batch->tables.rotation_trig_lut.values,
                         tile_.deltas_of(block), tile_.batch->tables.delta_width);
        uint32_t* keys = keys_ + place * 2 * words_ * block_;
        for (size_t word = 0; word < words_; ++word)
            for (size_t lane = 0; lane < block_; lane += L) {
                __m512 high[2], low[2];
                for (size_t d = 0; d < 2; ++d) {
                    const __m512 x = _mm512_loadu_ps(rotated_ + (2 * word + d) * block_ + lane);
                    high[d] = rounded(x);
                    low[d] = rounded(_mm512_sub_ps(x, high[d]));
                }
                uint32_t* to = keys + word * block_ + lane;
                _mm512_storeu_si512(to, Avx512::upper_halves(high[0], high[1]));
                _mm512_storeu_si512(to + words_ * block_, Avx512::upper_halves(low[0], low[1]));
            }
        return keys;
    }

    /// Values [block_size / 2][value_size] of a block. A word whose second token no row sees is
    /// copied without it: it may never have been written, and 0 times a NaN is one.
    const uint32_t* values_of(size_t block) {
        const auto* words = reinterpret_cast<const uint32_t*>(tile_.values_of(block));
        const size_t tokens = tile_.tokens_of(block);
        if (tokens % 2 == 0) return words;
        const size_t whole = tokens / 2 * size_;
        for (size_t i = 0; i < whole; ++i) values_[i] = words[i];
        for (size_t i = whole; i < whole + size_; ++i) values_[i] = words[i] & 0xffffu;
        return values_;
    }

    /// out [group_rows, max_span] = (or +=) the group's queries times N vectors of keys.
    template <size_t N, bool Add = false>
    [[gnu::noinline]] void dot(size_t group, const uint32_t* const* lanes, float* out) const {
        __m512 acc[R][N];
        unrolled<R * N>([&](auto i) PAGEWHEEL_INLINE {
            acc[i / N][i % N] =
                Add ? _mm512_loadu_ps(out + i / N * max_span + i % N * L) : _mm512_setzero_ps();
        });
        const uint32_t* keys[N];
        unrolled<N>([&](auto n) PAGEWHEEL_INLINE { keys[n] = lanes[n]; });
        const uint32_t* query = queries_ + group * words_ * R;
        const size_t block = block_;
        for (size_t word = 0, at = 0; word < words_; ++word, at += block, query += R) {
            add_outer_product<Avx512::add_bf16_products>(
                acc, [&](auto r) PAGEWHEEL_INLINE { return Avx512::set_words(query[r]); },
                [&](auto n) PAGEWHEEL_INLINE { return _mm512_loadu_si512(keys[n] + at); });
        }
        unrolled<R * N>([&](auto i) PAGEWHEEL_INLINE {
            _mm512_storeu_ps(out + i / N * max_span + i % N * L, acc[i / N][i % N]);
        });
    }

    template <size_t N>
    [[gnu::noinline]] void sum(size_t begin, size_t end, const float* correction,
                               const float* factor, float* out, size_t dimension,
                               size_t live) const {
        __m512 acc[R][N];
        unrolled<R * N>([&](auto i) PAGEWHEEL_INLINE { acc[i / N][i % N] = _mm512_setzero_ps(); });
        const __mmask16 last = Avx512::mask(size_ - dimension - (N - 1) * L);
        for (size_t t = begin; t < end;) {
            const size_t b = t / block_;
            const uint32_t* values = value_blocks_[b] + (t - b * block_) / 2 * size_ + dimension;
            const size_t stop = (b + 1) * block_ < end ? (b + 1) * block_ : end;
            for (; t < stop; t += 2, values += size_)
                add_outer_product<Avx512::add_bf16_products>(
                    acc,
                    [&](auto r) PAGEWHEEL_INLINE {
                        return Avx512::broadcast_word(weights_ + r * max_span + t);
                    },
                    [&](auto n) PAGEWHEEL_INLINE {
                        const uint32_t* words = values + n * L;
                        return n + 1 < N ? _mm512_loadu_si512(words)
                                         : _mm512_maskz_loadu_epi32(last, words);
                    });
        }
        update_rows<Avx512, R, N>(correction, factor, 1, out, padded(size_), live,
                                  [&](auto r, auto n) PAGEWHEEL_INLINE { return acc[r][n]; });
    }

    const PrefillTile<Avx512>& tile_;
    BlockUnpacker<Avx512, CacheFormat::bf16> unpacker_;
    size_t block_, words_, size_;
    uint32_t* queries_;
    float* rotated_;        // [key_size][block_size], of the block that is being rotated
    uint32_t* keys_;        // of the span's rotated blocks
    uint32_t* values_;      // of the block that ends with half a word
    uint16_t* weights_;     // [group_rows, max_span]
    bool rotates_ = false;  // some block of the span
    const uint32_t* key_lanes_[max_span / L];      // [words_][block_size], of each vector of keys
    const uint32_t* low_lanes_[max_span / L];      // what their rounding left; null if not rotated
    const uint32_t* value_blocks_[max_span / 16];  // [block_size / 2][value_size]
};

}  // namespace
}  // namespace pagewheel::kernels::avx512
