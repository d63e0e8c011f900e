// Prefill chunks in bf16 over tile registers, for any class of tiles (kernels/tiles.hpp).
#pragma once

#include "kernels/attention/prefill_kernel.hpp"
#include "kernels/isa/amx/prefill_tile_span.hpp"
#include "kernels/simd/math.hpp"

namespace pagewheel::kernels::amx {

/// The two matrix products of 32 rows: queries and probabilities rounded to bf16, sums in f32.
/// Neither keys nor values add an error of their own:
///   u8 is multiplied as codes, which bf16 holds. Zero points multiply the rounded operand's sum,
///   so that rounding meets x - zero point only.
///   bf16 is multiplied as it is.
///   f16, u4 and rotated keys are the sum of two bf16 numbers, which takes twice the products.
template <class V, class Tiles, CacheFormat Format>
class TileProducts {
    using Vec = typename V::F;
    using Numbers = TileNumbers<V>;

public:
    using Tile = typename Numbers::Tile;
    static constexpr size_t span_tokens = 128;
    static constexpr bool rounds_to_bf16 = true;

private:
    static constexpr size_t L = V::lanes, R = Tile::group_rows;
    static constexpr size_t side = Numbers::side, depth = Numbers::depth;
    static constexpr size_t row_bytes = TileConfig::most_row_bytes;  // of whole tiles
    static constexpr bool has_codes = Numbers::has_codes(Format);

public:
    TileProducts(const Tile& tile, Scratch<V>& scratch)
        : tile_(tile), keys_(tile, scratch), values_(tile, scratch) {
        queries_ = scratch.template take<uint16_t>(tile.groups * R * keys_.tiles() * depth);
        query_sums_ = scratch.take(tile.groups * R);
        weights_ = scratch.template take<uint16_t>(R * max_span);
    }

    void load_queries() {
        tiles_.configure();
        for (size_t row = 0; row < tile_.groups * R; ++row) load_query(row);
    }

    void load_span(size_t block, size_t end) {
        const size_t size = tile_.layout.block_size, columns = (end - block) * size;
        for (size_t b = block; b < end; ++b) {
            keys_.load(b, (b - block) * size);
            values_.load(b, (b - block) * size);
        }
        if (columns % depth) values_.clear(columns, columns + side);
    }

    void logits(size_t group, size_t begin, size_t end, float* out) {
        for (size_t v = begin / side, last = (end + side - 1) / side; v < last;) {
            if (v + 1 < last && keys_.terms(v) == keys_.terms(v + 1)) {
                dot<2>(group, v, out + v * side);
                v += 2;
            } else {
                dot<1>(group, v, out + v * side);
                ++v;
            }
        }
        if constexpr (has_codes)
            for (size_t r = 0; r < R; ++r)
                keys_.scale_logits(query_sums_[group * R + r], begin, end, out + r * max_span);
    }

    static Vec exp2(Vec x) { return simd::exp2_short<V>(x); }

    /// Rounds the probabilities of a group's row `r`, over codes those times the values' scales.
    class Row {
    public:
        Row(TileProducts& products, size_t r) : products_(products), row_(r) {}

        /// The product with a scale is not 1 where `p` is. What it was rounded to goes into the
        /// row's sum then, so that a key with nearly all of the mass adds no error.
        Vec put(size_t column, Vec p) {
            uint16_t* to = products_.weight(row_, column);
            if constexpr (has_codes) {
                const Vec scaled = V::mul(p, products_.values_.scale(column));
                const auto halves = V::to_bf16(scaled);
                V::store_halves(to, halves, L);
                const Vec weight = V::bf16_to_float(halves);
                zero_ = V::fma(weight, products_.values_.zero(column), zero_);
                return V::mul(weight, products_.values_.inverse_scale(column));
            } else {
                V::store_halves(to, V::to_bf16(p), L);
                return p;
            }
        }
        void end() {
            if constexpr (has_codes) products_.row_zeros_[row_] = V::sum(zero_);
        }

    private:
        TileProducts& products_;
        size_t row_;
        Vec zero_ = V::zero();
    };

    void weigh(size_t begin, size_t high, const float* correction, const float* factor, float* acc,
               size_t live) {
        // Of the tiles at both ends, the columns that no probability was put into.
        const size_t end = (high + side - 1) / side * side;
        if (begin % depth) clear_weights(begin - side);
        if (end % depth) clear_weights(end);
        const size_t first = begin / depth, last = (end + depth - 1) / depth;
        const size_t panels = values_.panels(), width = panels * side;
        alignas(row_bytes) float sums[R * 2 * side];
        for (size_t n = 0; n < panels; n += 2) {
            const bool two = n + 1 < panels;
            if (two)
                sum<2>(n, first, last, sums);
            else
                sum<1>(n, first, last, sums);
            for (size_t r = 0; r < live; ++r)
                for (size_t i = 0; i < (two ? 2 * side : side); i += L)
                    add(sums + r * 2 * side + i, row_zeros_[r], correction[r], factor[r],
                        acc + r * width + n * side + i);
        }
    }

private:
    /// queries_ [groups][2][keys_.tiles()] of tiles [16 rows][32 dimensions]
    void load_query(size_t row) {
        const Vec scale = V::set(tile_.config.scale * 1.44269504089f);
        const size_t size = tile_.layout.key_size, tiles = keys_.tiles();
        uint16_t* to = queries_ + (row / side * tiles * side + row % side) * depth;
        Vec sum = V::zero();
        for (size_t d = 0; d < tiles * depth; d += L) {
            Vec x = V::zero();
            if (row < tile_.rows && d < size)
                x = V::mul(V::load(tile_.query(row) + d, V::mask(size - d)), scale);
            const auto halves = V::to_bf16(x);
            V::store_halves(to + d / depth * side * depth + d % depth, halves, L);
            sum = V::add(sum, V::bf16_to_float(halves));
        }
        query_sums_[row] = V::sum(sum);
    }

    /// out [32, max_span] = the group's queries times N times 16 keys.
    template <size_t N>
    void dot(size_t group, size_t vector, float* out) {
        tiles_.template zero<0>();
        tiles_.template zero<2>();
        if constexpr (N == 2) tiles_.template zero<1>(), tiles_.template zero<3>();
        const size_t half = keys_.tiles() * side * depth;
        const uint16_t* queries = queries_ + group * 2 * half;
        const float *left = keys_.of(vector), *right = keys_.of(vector + N - 1);
        for (size_t term = 0; term < keys_.terms(vector); ++term) {
            const uint16_t* q = queries;
            for (size_t c = 0; c < keys_.tiles(); ++c, q += side * depth) {
                multiply<N>(q, q + half, left, right);
                left += Numbers::words, right += Numbers::words;
            }
        }
        store_sums_of_tiles<N>(out, max_span);
    }

    /// weights_ [2][Numbers::span_tiles] of tiles [16 rows][32 tokens]
    uint16_t* weight(size_t row, size_t column) const {
        return weights_ + (row / side * Numbers::span_tiles + column / depth) * side * depth +
               row % side * depth + column % depth;
    }

    void clear_weights(size_t column) const {
        for (size_t r = 0; r < R; ++r) V::store_halves(weight(r, column), V::to_bf16(V::zero()), L);
    }

    /// out [32, 32] = weights times values of N times 16 dimensions, tiles [first, last) of tokens.
    template <size_t N>
    void sum(size_t panel, size_t first, size_t last, float* out) {
        tiles_.template zero<0>();
        tiles_.template zero<2>();
        if constexpr (N == 2) tiles_.template zero<1>(), tiles_.template zero<3>();
        for (size_t term = 0; term < values_.terms; ++term)
            for (size_t c = first; c < last; ++c)
                multiply<N>(weight(0, c * depth), weight(side, c * depth),
                            values_.of(panel, term, c), values_.of(panel + N - 1, term, c));
        store_sums_of_tiles<N>(out, 2 * side);
    }

    /// acc = acc * correction + (sums - zero) * factor, of 16 dimensions.
    static void add(const float* sums, float zero, float correction, float factor, float* acc) {
        const Vec sum = V::sub(V::load(sums), V::set(zero));
        const Vec before = V::mul(V::set(correction), V::load(acc));
        V::store(acc, V::fma(V::set(factor), sum, before));
    }

    // ---- tiles 0 to 3 hold sums, 4 and 5 rows, 6 and 7 columns

    /// 16 and 16 rows times N times 16 columns, 32 along k.
    template <size_t N>
    void multiply(const uint16_t* upper, const uint16_t* lower, const float* left,
                  const float* right) {
        tiles_.template load<4>(upper, row_bytes);
        tiles_.template load<6>(left, row_bytes);
        tiles_.template dpbf16<0, 4, 6>();
        tiles_.template load<5>(lower, row_bytes);
        tiles_.template dpbf16<2, 5, 6>();
        if constexpr (N == 1) return;
        tiles_.template load<7>(right, row_bytes);
        tiles_.template dpbf16<1, 4, 7>();
        tiles_.template dpbf16<3, 5, 7>();
    }

    template <size_t N>
    void store_sums_of_tiles(float* out, size_t stride) {
        tiles_.template store<0>(out, stride * sizeof *out);
        tiles_.template store<2>(out + side * stride, stride * sizeof *out);
        if constexpr (N == 1) return;
        tiles_.template store<1>(out + side, stride * sizeof *out);
        tiles_.template store<3>(out + side * stride + side, stride * sizeof *out);
    }

    Tiles tiles_;
    const Tile& tile_;
    TileKeys<V, Format> keys_;
    TileValues<V, Format> values_;
    uint16_t *queries_, *weights_;
    float* query_sums_;        // [groups * 32], of the rounded queries
    float row_zeros_[R] = {};  // over codes: sums of weights times zero points
};

/// Prefill chunks by `Tiles`; over an f32 cache, f32 arithmetic.
template <class V, class Tiles>
struct PrefillOnTiles {
    template <CacheFormat Format>
    using Products = std::conditional_t<Format == CacheFormat::f32, FloatProducts<V, Format>,
                                        TileProducts<V, Tiles, Format>>;

    static constexpr PrefillKernels kernels() { return prefill_kernels_of<V, Products>(); }
};

}  // namespace pagewheel::kernels::amx
