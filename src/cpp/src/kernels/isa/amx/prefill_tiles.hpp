// Prefill chunks in bf16 over tile registers, for any class of tiles (kernels/tiles.hpp).
//
// Both products are transposed: logits are keys times queries, and the output's sums are values
// times weights. So a vector holds 16 rows, and nothing is ever summed or compared within one.
#pragma once

#include <limits>

#include "kernels/attention/prefill_kernel.hpp"
#include "kernels/isa/amx/prefill_tile_span.hpp"

namespace pagewheel::kernels::amx {

/// Keys and values are unpacked for a span of up to 1,024 keys and all rows of the tile. Then 32
/// rows at a time take 64 keys at a time: logits, softmax, and the product with the values. The
/// products of one such step and the softmax of the one before alternate, because tiles and vectors
/// compute at the same time.
///
/// Queries and weights are rounded to bf16; neither keys nor values add an error of their own:
///   u8 is multiplied as codes, which bf16 holds. Key scales and minima are applied to the logits.
///   Value scales are part of the weights, and so of their rounding.
///   bf16 is multiplied as it is.
///   f16, u4 and rotated keys are the sum of two bf16 numbers, which takes twice the products.
/// Tiles sum the weights as they were rounded, so that rounding adds no error to their sum.
///
/// Logits are taken relative to the largest of the first keys that a row sees. A later one may be
/// larger by far. Where the sums grow past a limit, or are no numbers, the rows are computed anew,
/// relative to their largest logit.
template <class V, class Tiles, CacheFormat Format>
class TilePrefill {
    using Vec = typename V::F;
    using Numbers = TileNumbers<V>;
    using Tile = typename Numbers::Tile;
    using Values = TileValues<V, Format>;
    static constexpr size_t R = Tile::group_rows;
    static constexpr size_t side = Numbers::side, depth = Numbers::depth;
    static constexpr size_t row_bytes = TileConfig::most_row_bytes;  // of whole tiles
    static constexpr size_t group_bytes = R * sizeof(float);
    static constexpr bool has_codes = Numbers::has_codes(Format);
    static constexpr size_t step_keys = 64;

public:
    static constexpr bool rounds_to_bf16 = true;
    static constexpr size_t tile_rows = 768;  // whose queries and sums stay in the L2 cache

    static size_t scratch_floats(const AttentionConfig& config, size_t rows) {
        Scratch<V> scratch(nullptr);
        const Tile tile(config, rows);
        TilePrefill kernel(tile, scratch);
        return scratch.used();
    }

    static void attend(const AttentionConfig& config, const AttentionBatch& batch,
                       const AttentionTile& tile, const TileResult& result, float* memory) {
        Scratch<V> scratch(memory);
        const Tile view(config, batch, tile);
        const unsigned before = V::without_denormals();
        TilePrefill(view, scratch).attend(result);
        V::restore(before);
    }

private:
    /// Columns [begin, end) of the span, multiples of 32.
    struct Keys {
        size_t begin, end;
        size_t size() const { return end - begin; }
    };

    /// What a group's rows see of the span that is unpacked.
    struct View {
        size_t group;
        Keys keys;  // that some row sees
        Keys all;   // that all rows see, not rounded to tiles
        // Row r sees columns from lowest[r] to highest[r], and stands at position[r].
        alignas(row_bytes) float lowest[R], highest[R], position[R];
    };

    /// 16 of a group's rows, from row `first` of it on.
    struct Half {
        size_t first;
        Vec maximum, query_sum;
    };
    Half half_of(const View& view, size_t first) const {
        const size_t row = view.group * R + first;
        return {first, V::load(maximum_ + row), V::load(query_sums_ + row)};
    }

    TilePrefill(const Tile& tile, Scratch<V>& scratch)
        : tile_(tile), keys_(tile, scratch), values_(tile, scratch) {
        const size_t rows = tile.groups * R;
        queries_ = scratch.take(tile.groups * 2 * keys_.tiles() * Numbers::words);
        query_sums_ = scratch.take(rows);
        slopes_ = scratch.take(rows);
        maximum_ = scratch.take(rows);
        sums_ = scratch.take(tile.groups * group_sums());
        logits_ = scratch.take(step_keys * R);
        for (float*& weights : weights_) weights = scratch.take(step_keys / 2 * R);
        pending_ = scratch.template take<bool>(tile.groups);
    }

    void attend(const TileResult& result) {
        tiles_.configure();
        for (size_t row = 0; row < tile_.groups * R; ++row) load_query(row);
        for (size_t i = 0; i < tile_.groups * 2 * keys_.tiles(); ++i)
            Numbers::transpose(queries_ + i * Numbers::words);
        std::fill_n(pending_, tile_.groups, true);
        // ALiBi's bias lets logits grow with the keys.
        bool exact = tile_.batch->alibi_slopes != nullptr;
        for (;; exact = true) {
            for (size_t group = 0; group < tile_.groups; ++group) {
                if (!pending_[group]) continue;
                std::fill_n(maximum_ + group * R, R, no_key);
                std::fill_n(sums_ + group * group_sums(), group_sums(), 0.0f);
            }
            if (exact) for_spans<false>([&](const View& view) { find_maxima(view); });
            for_spans<true>([&](const View& view) { attend_group(view); });
            bool all_finite = true;
            for (size_t group = 0; group < tile_.groups; ++group)
                if (pending_[group]) {
                    pending_[group] = !store(group, result);
                    all_finite &= !pending_[group];
                }
            if (exact || all_finite) return;
        }
    }

    // ---- the spans

    /// Unpacks span after span, and calls body(view) for the groups that are pending and see
    /// something of it.
    template <bool WithValues, class Body>
    void for_spans(const Body& body) {
        const size_t block = tile_.layout.block_size, last = tile_.tile->block_end;
        const size_t blocks = Numbers::span_blocks(tile_.layout);
        for (size_t b = tile_.tile->block_begin, end; b < last; b = end) {
            end = std::min(b + blocks, last);
            load_span<WithValues>(b, end);
            for (size_t group = 0; group < tile_.groups; ++group) {
                if (!pending_[group]) continue;
                View view;
                if (look(group, b * block, end * block, view)) body(view);
            }
        }
    }

    template <bool WithValues>
    [[gnu::noinline]] void load_span(size_t block, size_t end) {
        const size_t size = tile_.layout.block_size, columns = (end - block) * size;
        const size_t whole = Numbers::whole_tiles(columns);
        for (size_t b = block; b < end; ++b) keys_.load(b, (b - block) * size);
        if (whole > columns) keys_.clear(columns);
        if constexpr (!WithValues && !has_codes) return;
        values_.begin(whole);
        for (size_t b = block; b < end; ++b) values_.load(b, (b - block) * size);
        values_.clear(columns, whole);
        values_.end(whole);
    }

    /// Whether the group sees any of keys [first, end), which are the span's.
    bool look(size_t group, size_t first, size_t end, View& view) const {
        const size_t first_row = group * R, last_row = first_row + R - 1;
        const size_t next = tile_.position(last_row) + 1;
        const size_t stop = std::min(next, end), start = tile_.window_begin(first_row, first);
        if (stop <= start) return false;
        view.group = group;
        view.keys = {(start - first) / depth * depth, Numbers::whole_tiles(stop - first)};
        const size_t first_next = std::min(tile_.position(first_row) + 1, end);
        view.all = {tile_.window_begin(last_row, first) - first,
                    first_next > first ? first_next - first : 0};
        for (size_t r = 0; r < R; ++r) {
            const size_t row = first_row + r;
            const size_t row_next = std::min(tile_.position(row) + 1, end);
            view.highest[r] = static_cast<float>(row_next) - static_cast<float>(first) - 1;
            view.lowest[r] = static_cast<float>(tile_.window_begin(row, first) - first);
            view.position[r] = static_cast<float>(tile_.position(row)) - static_cast<float>(first);
        }
        return true;
    }

    /// Whether logits of these columns are the products alone, whatever the row.
    bool are_plain(const View& view, Keys keys) const {
        return keys.begin >= view.all.begin && keys.end <= view.all.end &&
               tile_.config.soft_cap == 0 && !tile_.batch->alibi_slopes;
    }

    // ---- a group

    void attend_group(const View& view) {
        const auto nothing = [](size_t, size_t) {};
        Keys now = {view.keys.begin, std::min(view.keys.begin + step_keys, view.keys.end)};
        multiply_keys(view, now, nothing);
        if (has_rows_without_key(view)) raise_maxima<true>(view, now);
        softmax(view, now, First(), [](const auto& some) { some(0, 1); });
        while (now.end < view.keys.end) {
            const Keys next = {now.end, std::min(now.end + step_keys, view.keys.end)};
            softmax(view, now, Second(),
                    [&](const auto& some) { multiply_keys(view, next, some); });
            std::swap(weights_[0], weights_[1]);
            softmax(view, next, First(),
                    [&](const auto& some) { multiply_values(view, now, weights_[1], some); });
            now = next;
        }
        softmax(view, now, Second(), [](const auto& some) { some(0, 1); });
        multiply_values(view, now, weights_[0], nothing);
    }

    void find_maxima(const View& view) {
        const auto nothing = [](size_t, size_t) {};
        for (Keys now = view.keys; now.begin < view.keys.end; now.begin += step_keys) {
            now.end = std::min(now.begin + step_keys, view.keys.end);
            multiply_keys(view, now, nothing);
            raise_maxima<false>(view, now);
        }
    }

    bool has_rows_without_key(const View& view) const {
        unsigned rows = 0;
        for (size_t r = view.group * R; r < (view.group + 1) * R; r += side)
            rows |= V::mask_bits(V::equal(V::load(maximum_ + r), V::set(no_key)));
        return rows != 0;
    }

    /// Raises the maxima of all rows, or of those that have seen no key before, to the largest
    /// logit, as a whole number, so that what it is makes no difference but in the exponents.
    template <bool OnlyNew>
    [[gnu::noinline]] void raise_maxima(const View& view, Keys keys) {
        for (size_t first = 0; first < R; first += side) {
            const Half half = half_of(view, first);
            Vec largest = half.maximum;
            for (size_t column = keys.begin; column < keys.end; ++column)
                largest = V::max(logit<false>(view, keys, column, half), largest);
            largest = V::round(largest);
            if constexpr (OnlyNew)
                largest = V::select(V::equal(half.maximum, V::set(no_key)), largest, half.maximum);
            V::store(maximum_ + view.group * R + first, largest);
        }
    }

    // ---- softmax

    // Which keys of a step. The logits of the second ones are read before those of the next step
    // are stored over them, see multiply_keys().
    struct First {
        static size_t begin(Keys) { return 0; }
        static size_t end(Keys keys) { return keys.size() / 2; }
    };
    struct Second {
        static size_t begin(Keys keys) { return keys.size() / 2; }
        static size_t end(Keys keys) { return keys.size(); }
    };

    /// Calls body(some); some(i, n) makes the i-th of n parts of these keys' logits weights_[0].
    template <class Which, class Body>
    void softmax(const View& view, Keys keys, Which which, const Body& body) {
        if (are_plain(view, keys))
            softmax_of<true>(view, keys, which, body);
        else
            softmax_of<false>(view, keys, which, body);
    }

    template <bool Plain, class Which, class Body>
    [[gnu::noinline]] void softmax_of(const View& view, Keys keys, Which which, const Body& body) {
        const size_t begin = which.begin(keys) / 2, pairs = which.end(keys) / 2 - begin;
        const Half halves[] = {half_of(view, 0), half_of(view, side)};  // stay in registers
        float* weights = weights_[0];
        size_t done = 0;
        body([&](size_t part, size_t parts) PAGEWHEEL_INLINE {
            const size_t stop = part + 1 < parts ? (part + 1) * pairs / parts : pairs;
            for (; done < stop; ++done) {
                const size_t column = keys.begin + 2 * (begin + done);
                unrolled<2>([&](auto i) PAGEWHEEL_INLINE {
                    const Half& half = halves[i];
                    const Vec a = logit<Plain>(view, keys, column, half);
                    const Vec b = logit<Plain>(view, keys, column + 1, half);
                    const Vec p = V::exp2_rough(V::sub(a, half.maximum));
                    const Vec q = V::exp2_rough(V::sub(b, half.maximum));
                    V::store(weights + (begin + done) * R + half.first,
                             V::as_float(V::rounded_halves(p, q)));
                });
            }
        });
    }

    /// The logits of 16 rows, in powers of two; with the logarithm of the value's scale.
    template <bool Plain>
    [[gnu::always_inline]] Vec logit(const View& view, Keys keys, size_t column,
                                     const Half& half) const {
        const size_t first = half.first;
        Vec x = V::load(logits_ + (column - keys.begin) * R + first);
        Vec shift = V::zero();
        if constexpr (has_codes) {
            const Vec minimum = keys_.minimum(column);
            if constexpr (!Plain) shift = values_.shift(column);
            const Vec rest = Plain ? V::fma(half.query_sum, minimum, values_.shift(column))
                                   : V::mul(half.query_sum, minimum);
            x = V::fma(x, keys_.scale(column), rest);
        }
        if constexpr (Plain) return x;
        const Vec at = V::set(static_cast<float>(column));
        if (const float cap = tile_.config.soft_cap; cap > 0) x = simd::soft_capped<V>(x, cap);
        if (tile_.batch->alibi_slopes) {
            const Vec distance = V::sub(at, V::load(view.position + first));
            x = V::fma(V::load(slopes_ + view.group * R + first), distance, x);
        }
        x = V::add(x, shift);
        x = V::select(V::greater(at, V::load(view.highest + first)), V::set(hidden), x);
        return V::select(V::greater(V::load(view.lowest + first), at), V::set(hidden), x);
    }

    // ---- the products

    /// logits_ [64][32 rows] = keys times queries. Calls some(i, n) before the i-th 16 keys; what
    /// was stored for keys [16 i - 16, 16 i) of the step before is read by then.
    template <class Some>
    [[gnu::always_inline]] void multiply_keys(const View& view, Keys keys, const Some& some) {
        const size_t tiles = keys_.tiles(), half = tiles * Numbers::words;
        const float* queries = queries_ + view.group * 2 * half;
        const size_t first = keys.begin / side;
        multiply<false>(
            keys.size() / side, [&](size_t n) { return keys_.terms(first + n) * tiles; },
            [&](size_t n, size_t i) { return keys_.of(first + n) + i * Numbers::words; },
            [&](size_t, size_t i) {
                return queries + (i < tiles ? i : i - tiles) * Numbers::words;
            },
            half, row_bytes, logits_, some);
    }

    /// The group's sums += values times weights.
    template <class Some>
    [[gnu::always_inline]] void multiply_values(const View& view, Keys keys, const float* weights,
                                                const Some& some) {
        constexpr size_t terms = Values::terms;
        const size_t tokens = keys.size() / depth, tiles = values_.tiles();
        const size_t apart = values_.apart();
        const float* values = values_.of(keys.begin / depth);
        const auto terms_of = [&](size_t tile) { return tile < tiles ? terms : 1; };
        multiply<true>(
            tiles + 1, [&](size_t tile) { return tokens * terms_of(tile); },
            [&](size_t tile, size_t i) {
                const size_t each = terms_of(tile);
                return values + i / each * apart + (tile * terms + i % each) * Numbers::words;
            },
            [&](size_t tile, size_t i) { return weights + i / terms_of(tile) * side * R; }, side,
            group_bytes, sums_ + view.group * group_sums(), some);
    }

    /// to [16 blocks][32] = (or +=) the sum of left(n, i) times right(n, i), i < steps(n), for
    /// each block n < blocks. Of right()'s two tiles, `apart` floats from each other, rows are
    /// `stride` bytes apart. Calls some(n, blocks) before block n.
    template <bool Add, class Steps, class Left, class Right, class Some>
    [[gnu::always_inline]] void multiply(size_t blocks, const Steps& steps, const Left& left,
                                         const Right& right, size_t apart, size_t stride, float* to,
                                         const Some& some) {
        size_t n = 0;
        const auto block = [&](auto sums) PAGEWHEEL_INLINE {
            constexpr int C = sums, before = 2 - C;
            some(n, blocks);
            start<C, Add>(to + n * side * R);
            const size_t last = steps(n);
            for (size_t i = 0; i < last; i += 2) {
                add<C, 4>(left(n, i), right(n, i), apart, stride);
                if (i == 0 && n > 0) store_sums<before>(to + (n - 1) * side * R);
                if (i + 1 < last) add<C, 5>(left(n, i + 1), right(n, i + 1), apart, stride);
            }
            ++n;
        };
        while (n + 1 < blocks) {
            block(std::integral_constant<int, 0>());
            block(std::integral_constant<int, 2>());
        }
        if (n < blocks) {
            block(std::integral_constant<int, 0>());
            return store_sums<0>(to + (n - 1) * side * R);
        }
        store_sums<2>(to + (n - 1) * side * R);
    }

    // Tiles 0 and 1, and in turn 2 and 3, hold the sums of 16 keys or dimensions; 4 and 5 those
    // keys or values, which are not read again soon; 6 and 7 two times 16 rows.

    template <int C, bool Add>
    [[gnu::always_inline]] void start(const float* from) {
        if constexpr (Add) {
            tiles_.template load<C>(from, group_bytes);
            tiles_.template load<C + 1>(from + side, group_bytes);
        } else {
            tiles_.template zero<C>();
            tiles_.template zero<C + 1>();
        }
    }

    template <int C, int A>
    [[gnu::always_inline]] void add(const float* left, const float* right, size_t apart,
                                    size_t stride) {
        tiles_.template load_streamed<A>(left, row_bytes);
        tiles_.template load<6>(right, stride);
        tiles_.template dpbf16<C, A, 6>();
        tiles_.template load<7>(right + apart, stride);
        tiles_.template dpbf16<C + 1, A, 7>();
    }

    template <int C>
    [[gnu::always_inline]] void store_sums(float* to) {
        tiles_.template store<C>(to, group_bytes);
        tiles_.template store<C + 1>(to + side, group_bytes);
    }

    // ---- queries and results

    /// queries_ [groups][2][keys_.tiles()] of tiles, still [16 rows][32 dimensions]
    void load_query(size_t row) {
        constexpr float log2_e = 1.44269504089f;
        const Vec scale = V::set(tile_.config.scale * log2_e);
        const size_t size = tile_.layout.key_size, tiles = keys_.tiles();
        auto* to = reinterpret_cast<uint16_t*>(queries_ + row / side * tiles * Numbers::words) +
                   row % side * depth;
        const size_t ahead = row + 8;  // is fetched: queries lie in memory, not in a cache
        Vec sum = V::zero();
        for (size_t d = 0; d < tiles * depth; d += side) {
            if (ahead < tile_.rows) __builtin_prefetch(tile_.query(ahead) + d);
            Vec x = V::zero();
            if (row < tile_.rows && d < size)
                x = V::mul(V::load(tile_.query(row) + d, V::mask(size - d)), scale);
            const auto halves = V::to_bf16(x);
            V::store_halves(to + d / depth * side * depth + d % depth, halves, side);
            sum = V::add(sum, V::bf16_to_float(halves));
        }
        query_sums_[row] = V::reduce_sum(sum);
        const float* slopes = tile_.batch->alibi_slopes;
        slopes_[row] = slopes ? slopes[tile_.head_of(row)] * log2_e : 0;
    }

    /// The floats of a group's sums: [tiles, then one for the sums of weights][16][32 rows]
    size_t group_sums() const { return (values_.tiles() + 1) * side * R; }

    /// The group's rows of the result; false if some should be computed anew.
    bool store(size_t group, const TileResult& result) const {
        const size_t width = values_.tiles() * side;
        bool all_finite = true;
        for (size_t half = 0; half < R; half += side) {
            const float* sums = sums_ + group * group_sums() + half;
            const float* weights = sums + width * R;
            Vec sum = V::load(weights), added = V::zero();
            if constexpr (has_codes) {
                sum = V::add(sum, V::load(weights + R));
                added = V::add(V::load(weights + 2 * R), V::load(weights + 3 * R));
            }
            const size_t first = group * R + half;
            const size_t live = first < tile_.rows ? std::min(side, tile_.rows - first) : 0;
            Vec excess = V::zero();  // no number where the row is not finite
            for (size_t d = 0; d < width; d += side) {
                alignas(row_bytes) float rows[Numbers::words];
                for (size_t i = 0; i < side; ++i) {
                    const Vec x = V::add(V::load(sums + (d + i) * R), added);
                    excess = V::fma(x, V::zero(), excess);
                    V::store(rows + i * side, x);
                }
                Numbers::transpose(rows);
                for (size_t r = 0; r < live; ++r)
                    V::store(result.acc + (first + r) * width + d, V::load(rows + r * side));
            }
            alignas(row_bytes) float of_row[side], excess_of_row[side];
            V::store(of_row, sum);
            V::store(excess_of_row, excess);
            for (size_t r = 0; r < live; ++r) {
                const bool valid = !sees_keys(first + r) || (of_row[r] > 0 && of_row[r] < most_sum);
                result.maximum[first + r] = maximum_[first + r] * 0.69314718056f;
                result.sum[first + r] = valid ? of_row[r] : std::numeric_limits<float>::quiet_NaN();
                all_finite &= valid && excess_of_row[r] == 0;
            }
        }
        return all_finite;
    }

    bool sees_keys(size_t row) const {
        const size_t block = tile_.layout.block_size;
        const size_t begin = tile_.window_begin(row, tile_.tile->block_begin * block);
        return begin < std::min(tile_.position(row) + 1, tile_.tile->block_end * block);
    }

    static constexpr float hidden = -3e38f;  // below every logit; its weight is 0
    static constexpr float no_key = -1e30f;  // the maximum of no keys; far above `hidden`
    /// Times a value of f16, u8 or u4 it is finite; a larger product of bf16 is found by `excess`.
    static constexpr float most_sum = 0x1p64f;

    Tiles tiles_;
    const Tile& tile_;
    TileKeys<V, Format> keys_;
    Values values_;
    float* queries_;     // [groups][2][keys_.tiles()] of tiles [16 pairs of dimensions][16 rows]
    float* query_sums_;  // [groups * 32], of the rounded queries
    float* slopes_;      // [groups * 32]
    float* maximum_;     // [groups * 32]
    float* sums_;        // [groups] of group_sums()
    float* logits_;      // [64][32], of a step
    float* weights_[2];  // [32 pairs of keys][32], words; of the step at hand and the one before
    bool* pending_;      // [groups], whose sums are to be computed
};

/// Prefill chunks by `Tiles`; over an f32 cache, f32 arithmetic.
template <class V, class Tiles>
struct PrefillOnTiles {
    template <CacheFormat Format>
    using Kernel =
        std::conditional_t<Format == CacheFormat::f32, PrefillKernel<V, FloatProducts<V, Format>>,
                           TilePrefill<V, Tiles, Format>>;

    static PrefillKernels kernels(CacheFormat format) {
        return prefill_kernels_of<V, Kernel>(format);
    }
};

}  // namespace pagewheel::kernels::amx
