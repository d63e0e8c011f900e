// The blocks that a tile of few rows is at, their keys and values and the tile's queries made ready
// for an arithmetic, and the arithmetic in f32. For any V (simd/vectors.hpp).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention/tile.hpp"
#include "kernels/cache_formats.hpp"
#include "kernels/simd/vectors.hpp"

namespace pagewheel::kernels {

/// Queries of one kv head as the arithmetic of the keys wants them. `stride` is the scratch width
/// of a head, a multiple of 64 that is zero past the head size.
struct PreparedQueries {
    size_t stride;
    float* floats;  // [rows, stride]: query * config.scale * log2(e) / unit
    float* sums;    // [rows, stride / 16]: floats * unit, summed over a group's dimensions
    float* unit;    // [rows]: value of 1 in the integers; 1 for float arithmetic
    int8_t* high;   // [rows, stride]: floats = 128 high + low
    int8_t* low;    // [rows, stride]

    const float* sums_of(size_t row) const { return sums + row * (stride / 16); }
};

/// Probabilities of a span as the arithmetic of the values wants them.
struct PreparedWeights {
    float unit;      // value of 1 in the weights
    float* floats;   // [rows, span]: probability * scale of the value, in u8 and u4
    float* offsets;  // [rows]: to be added to the sum of weight * unit * code
    int8_t* high;    // [rows, span]: probability * scale / unit = 128 high + low
    int8_t* low;     // [rows, span]
};

/// Keys of one head in a block, from some lane (token) on.
struct KeyLanes {
    const uint32_t* words;   // [key_words, block_size]
    const uint32_t* scales;  // [groups, block_size]; unused without groups
    size_t block_size, key_words, groups;
    ptrdiff_t ahead;  // bytes to where keys of a later block begin, which is prefetched
};

/// Values of one head in a span: words of tokens_per_word tokens after another, from some dimension
/// on. A row of words lies `offset` words from rows[i]; the one that is prefetched, ahead[i] bytes
/// from there.
struct ValueRows {
    const uint32_t* const* rows;  // [(tokens + tokens_per_word - 1) / tokens_per_word]
    const ptrdiff_t* ahead;       // [the same]
    size_t offset, tokens;
    size_t fetched;  // rows whose lines ahead were fetched before
};

/// Fetches the cache line of lane 0, 16.. of a vector of `lanes` words into the second level cache.
template <size_t Lane>
[[gnu::always_inline]] inline void prefetch_line(const uint32_t* words, ptrdiff_t ahead) {
    if constexpr (Lane % 16 == 0)
        __builtin_prefetch(reinterpret_cast<const uint8_t*>(words + Lane) + ahead, 0, 2);
}

/// Float arithmetic: exact but for f32 rounding. `V` gives vectors F of floats, I of words.
template <class V, CacheFormat Format>
struct FloatArithmetic {
    using T = FormatTraits<Format>;
    using Vec = typename V::F;

    /// The unit for queries whose elements are at most `amplitude`.
    static float unit(float) { return 1; }

    static void prepare_queries(const PreparedQueries& q, size_t rows) {
        if constexpr (T::quantized) {
            const size_t group = T::group < whole_head ? T::group : q.stride;
            for (size_t r = 0; r < rows; ++r)
                for (size_t begin = 0; begin < q.stride; begin += group) {
                    Vec sum = V::zero();
                    for (size_t d = begin; d < begin + group; d += V::lanes)
                        sum = V::add(sum, V::load(q.floats + r * q.stride + d));
                    q.sums[r * (q.stride / 16) + begin / group] = V::reduce_sum(sum);
                }
        } else {
            (void)q, (void)rows;
        }
    }

    /// out[r][n] = query row + r times the keys of lanes n * V::lanes and up.
    template <size_t R, size_t N>
    [[gnu::always_inline]] static void logits(const KeyLanes& keys, const PreparedQueries& q,
                                              size_t row, Vec (&out)[R][N]) {
        if constexpr (!T::quantized) {
            dot<R, N>(keys, 0, keys.key_words, q, row, out);
        } else {
            unrolled<R * N>([&](auto i) PAGEWHEEL_INLINE { out[i / N][i % N] = V::zero(); });
            for (size_t g = 0; g < keys.groups; ++g) {
                const size_t begin = g * T::group_words, left = keys.key_words - begin;
                const size_t end = begin + (left < T::group_words ? left : T::group_words);
                Vec dots[R][N];
                dot<R, N>(keys, begin, end, q, row, dots);
                unrolled<N>([&](auto n) PAGEWHEEL_INLINE {
                    const auto word =
                        V::load_words(keys.scales + g * keys.block_size + n * V::lanes);
                    const Vec scale = scale_of<V>(word), minimum = minimum_of<V>(word);
                    unrolled<R>([&](auto r) PAGEWHEEL_INLINE {
                        const Vec x = V::fma(scale, dots[r][n], out[r][n]);
                        out[r][n] = V::fma(minimum, V::set(q.sums_of(row + r)[g]), x);
                    });
                });
            }
        }
    }

    /// Sums products of queries and codes, or numbers, over words [begin, end).
    template <size_t R, size_t N>
    [[gnu::always_inline]] static void dot(const KeyLanes& keys, size_t begin, size_t end,
                                           const PreparedQueries& q, size_t row, Vec (&out)[R][N]) {
        unrolled<R * N>([&](auto i) PAGEWHEEL_INLINE { out[i / N][i % N] = V::zero(); });
        const size_t stride = q.stride;
        const float* query = q.floats + row * stride;
        for (size_t w = begin; w < end; ++w) {
            const uint32_t* words = keys.words + w * keys.block_size;
            typename V::I word[N];
            unrolled<N>([&](auto n) PAGEWHEEL_INLINE {
                word[n] = V::load_words(words + n * V::lanes);
                prefetch_line<n * V::lanes>(words, keys.ahead);
            });
            unrolled<T::dims_per_word>([&](auto g) PAGEWHEEL_INLINE {
                add_outer_product<V::add_product>(
                    out,
                    [&](auto r) PAGEWHEEL_INLINE {
                        return V::set(query[r * stride + w * T::dims_per_word + g]);
                    },
                    [&](auto n) PAGEWHEEL_INLINE { return T::template element<V, g>(word[n]); });
            });
        }
    }

    /// Makes a span's scales and minimums [n] ready for prepare_weights(), whose unit it returns.
    static float prepare_scales(float*, float*, size_t) { return 1; }

    /// Weights of n tokens from their probabilities [rows, span]; scales and minimums are 0 past
    /// the end. Without scales the probabilities are the weights.
    static void prepare_weights(const PreparedWeights& p, const float* probabilities, size_t rows,
                                size_t n, size_t span, const float* scales, const float* minimums) {
        if constexpr (T::quantized) {
            for (size_t r = 0; r < rows; ++r) {
                Vec offset = V::zero();
                for (size_t t = 0; t < n; t += V::lanes) {
                    const Vec x = V::load(probabilities + r * span + t);
                    V::store(p.floats + r * span + t, V::mul(x, V::load(scales + t)));
                    offset = V::fma(x, V::load(minimums + t), offset);
                }
                p.offsets[r] = V::reduce_sum(offset);
            }
        } else {
            (void)p, (void)probabilities, (void)rows, (void)n, (void)span, (void)scales,
                (void)minimums;
        }
    }

    /// out[r][n][nibble] = weights of row + r times the span's codes or values. `p` has one element
    /// for each nibble of a word.
    template <size_t R, size_t N>
    [[gnu::always_inline]] static void weigh(const ValueRows& values,
                                             const typename V::Mask (&mask)[N],
                                             const PreparedWeights* p, const float* probabilities,
                                             size_t row, size_t span,
                                             Vec (&out)[R][N][T::nibbles]) {
        unrolled<R * N * T::nibbles>([&](auto i) PAGEWHEEL_INLINE {
            out[i / T::nibbles / N][i / T::nibbles % N][i % T::nibbles] = V::zero();
        });
        const float* weights[T::nibbles];
        unrolled<T::nibbles>([&](auto i) PAGEWHEEL_INLINE {
            weights[i] = (T::quantized ? p[i].floats : probabilities) + row * span;
        });
        for (size_t t = 0, i = 0; t < values.tokens; t += T::tokens_per_word, ++i) {
            const uint32_t* words = values.rows[i] + values.offset;
            // A word may hold tokens that were never written: 0 times their NaN would be NaN.
            const uint32_t valid = t + 1 == values.tokens ? 0xffffu : ~0u;
            typename V::I word[N];
            unrolled<N>([&](auto n) PAGEWHEEL_INLINE {
                word[n] = V::load_words(words + n * V::lanes, mask[n]);
                if constexpr (T::bits == 16) word[n] = V::bit_and(word[n], valid);
                if (i >= values.fetched) prefetch_line<n * V::lanes>(words, values.ahead[i]);
            });
            unrolled<T::dims_per_word>([&](auto g) PAGEWHEEL_INLINE {
                constexpr size_t token = T::nibbles == 2 ? g % 4 : g;
                constexpr size_t nibble = T::nibbles == 2 ? g / 4 : 0;
                Vec v[N];
                unrolled<N>([&](auto n)
                                PAGEWHEEL_INLINE { v[n] = T::template element<V, g>(word[n]); });
                unrolled<R>([&](auto r) PAGEWHEEL_INLINE {
                    const Vec weight = V::set(weights[nibble][r * span + t + token]);
                    unrolled<N>([&](auto n) PAGEWHEEL_INLINE {
                        out[r][n][nibble] = V::fma(v[n], weight, out[r][n][nibble]);
                    });
                });
            });
        }
    }
};

struct SpanBlock {
    const uint8_t *keys, *values;        // of the tile's first kv head
    ptrdiff_t keys_ahead, values_ahead;  // bytes to the block that is fetched meanwhile
    const int32_t* deltas;               // null, one or one per token
};

/// Up to span_blocks() blocks of a tile.
template <class V, CacheFormat Format>
class TileSpan {
    static constexpr size_t per_word = FormatTraits<Format>::tokens_per_word;
    static constexpr size_t max_keys = 256;  // a span of several blocks has span_tokens at most

public:
    explicit TileSpan(const TileView<V>& view)
        : view_(view),
          key_bytes_(view.layout.key_head_bytes()),
          value_bytes_(view.layout.value_head_bytes()),
          row_words_(view.layout.value_row_words()) {}

    size_t blocks = 0;
    size_t first_key = 0, keys = 0;  // of the sequence, that some row of the tile sees
    SpanBlock block[span_tokens / 16];
    const uint32_t* value_rows[max_keys / per_word];  // see ValueRows
    ptrdiff_t value_ahead[max_keys / per_word];

    /// Keys of block i of the span.
    size_t tokens(size_t i) const {
        const size_t size = view_.layout.block_size, left = keys - i * size;
        return left < size ? left : size;
    }

    /// Moves to the blocks from `first` on.
    void enter(size_t first) {
        const size_t size = view_.layout.block_size;
        blocks = view_.tile->block_end - first;
        if (blocks > span_blocks(size)) blocks = span_blocks(size);
        first_key = first * size;
        keys = blocks * size;
        if (view_.visible_end - first_key < keys) keys = view_.visible_end - first_key;
        for (size_t i = 0; i < blocks; ++i) {
            enter_block(first + i, i);
            const auto* words = reinterpret_cast<const uint32_t*>(block[i].values);
            const size_t row = i * size / per_word;
            for (size_t j = 0; j * per_word < tokens(i); ++j) {
                value_rows[row + j] = words + j * row_words_;
                value_ahead[row + j] = block[i].values_ahead;
            }
        }
    }

private:
    /// A tile's keys and values in block b of its sequence begin at this head of the pool.
    size_t first_head(const AttentionTile& tile, size_t b) const {
        const BatchTables& tables = view_.batch->tables;
        const auto entry = static_cast<size_t>(tables.block_indices_begins[tile.sequence]) + b;
        return static_cast<size_t>(tables.block_indices[entry]) * view_.layout.kv_heads +
               tile.kv_head;
    }

    /// The first head of what is read a span after block b, block i of this span; `own` if nothing
    /// is.
    size_t head_ahead(size_t b, size_t i, size_t own) const {
        const size_t later = b + span_blocks(view_.layout.block_size);
        if (later < view_.tile->block_end) return first_head(*view_.tile, later);
        const AttentionTile* next = view_.tile->next;
        if (!next || next->block_begin + i >= next->block_end) return own;
        return first_head(*next, next->block_begin + i);
    }

    void enter_block(size_t b, size_t i) {
        const size_t head = first_head(*view_.tile, b), ahead = head_ahead(b, i, head);
        block[i] = {view_.batch->key_blocks + head * key_bytes_,
                    view_.batch->value_blocks + head * value_bytes_,
                    static_cast<ptrdiff_t>((ahead - head) * key_bytes_),
                    static_cast<ptrdiff_t>((ahead - head) * value_bytes_), view_.deltas_of(b)};
    }

    const TileView<V>& view_;
    const size_t key_bytes_, value_bytes_, row_words_;
};

}  // namespace pagewheel::kernels
