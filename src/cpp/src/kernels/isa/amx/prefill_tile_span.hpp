// The keys and values of a span in bf16, as the tiles of a product hold them (kernels/tiles.hpp).
#pragma once

#include <algorithm>

#include "kernels/attention/prefill_float.hpp"
#include "kernels/simd/math.hpp"
#include "kernels/tiles.hpp"

namespace pagewheel::kernels::amx {

/// Floats that are bf16 numbers, and the words of two that tiles hold. V has 16 lanes, and
/// to_bf16() and bf16_to_float() besides: halves, and what they are as floats.
template <class V>
struct TileNumbers {
    using Vec = typename V::F;
    using Words = typename V::I;
    using Tile = PrefillTile<V, 32>;

    static constexpr size_t side = TileConfig::most_rows;  // rows, words of a row
    static constexpr size_t depth = 2 * side;              // bf16 numbers in a row
    static constexpr size_t words = side * side;
    static_assert(V::lanes == side && Tile::group_rows == 2 * side);

    static constexpr size_t most_span_keys = 1024;

    /// Blocks that are unpacked at once: keys and values stay in the L2 cache.
    static size_t span_blocks(const CacheLayout& layout) {
        constexpr size_t numbers = 128 * 1024;
        const size_t fitting = numbers / (layout.key_size + layout.value_size);
        const size_t keys = std::clamp<size_t>(fitting, 512, most_span_keys);
        return keys / layout.block_size;
    }

    /// A span's columns: its keys, and what fills the last tile.
    static constexpr size_t whole_tiles(size_t keys) { return (keys + depth - 1) / depth * depth; }
    static size_t span_columns(const CacheLayout& layout) {
        return whole_tiles(span_blocks(layout) * layout.block_size);
    }

    /// Formats that bf16 holds: u8 as codes. The others are sums of two bf16 numbers.
    static constexpr bool has_codes(CacheFormat format) { return format == CacheFormat::u8; }
    static constexpr bool is_exact(CacheFormat format) {
        return has_codes(format) || format == CacheFormat::bf16;
    }

    static Vec rounded(Vec x) { return V::bf16_to_float(V::to_bf16(x)); }

    /// Stores a word for each lane: `first` along k, then `second`.
    static void store(float* to, Vec first, Vec second) {
        V::store(to, V::as_float(V::upper_halves(first, second)));
    }
    /// Stores numbers that are no bf16: what is nearest, and `apart` from it what that left.
    static void store_sums(float* to, size_t apart, Vec first, Vec second) {
        const Vec a = rounded(first), b = rounded(second);
        store(to, a, b);
        store(to + apart, rounded(V::sub(first, a)), rounded(V::sub(second, b)));
    }

    /// Swaps rows and words of a tile.
    static void transpose(float* tile) {
        const float* rows[side];
        for (size_t i = 0; i < side; ++i) rows[i] = tile + i * side;
        V::transpose(rows, 0, tile, side);
    }
};

/// The span's keys. Those that are rotated are sums of two numbers, so that rotating adds no error.
template <class V, CacheFormat Format>
class TileKeys {
    using Numbers = TileNumbers<V>;
    using Vec = typename V::F;
    using Words = typename V::I;
    using T = FormatTraits<Format>;
    static constexpr size_t L = V::lanes, side = Numbers::side, depth = Numbers::depth;
    static constexpr bool has_codes = Numbers::has_codes(Format);

public:
    TileKeys(const typename Numbers::Tile& tile, Scratch<V>& scratch)
        : tile_(tile), unpacker_(tile.layout) {
        block_ = tile.layout.block_size;
        key_size_ = tile.layout.key_size;
        tiles_ = (key_size_ + depth - 1) / depth;
        const size_t columns = Numbers::span_columns(tile.layout);
        keys_ = scratch.take(columns / side * 2 * tiles_ * Numbers::words);
        floats_ = scratch.take(block_ * key_size_);
        if constexpr (!has_codes) return;
        scales_ = scratch.take(columns);
        minima_ = scratch.take(columns);
    }

    /// Along a head.
    size_t tiles() const { return tiles_; }

    /// The tiles of 16 keys: [2 terms][tiles()] of tiles [16 keys][16 pairs of dimensions]
    float* of(size_t vector) const { return keys_ + vector * 2 * tiles_ * Numbers::words; }

    /// The terms of these 16 keys: 1, or 2 if they are sums.
    size_t terms(size_t vector) const { return terms_[vector]; }

    // Of codes, key = code * scale + minimum.
    Vec scale(size_t column) const { return V::set(scales_[column]); }
    Vec minimum(size_t column) const { return V::set(minima_[column]); }

    /// A block, from `column` of the span on.
    void load(size_t block, size_t column) {
        const int32_t* deltas = tile_.deltas_of(block);
        const bool sums = deltas || !Numbers::is_exact(Format);
        const uint8_t* head = tile_.keys_of(block);
        if (sums) unpacker_.keys(head, floats_);
        if (deltas)
            unpacker_.rotate(floats_, tile_.config, tile_.batch->tables.rotation_trig_lut.values,
                             deltas, tile_.batch->tables.delta_width);
        for (size_t lane = 0; lane < block_; lane += L) {
            const size_t vector = (column + lane) / side;
            terms_[vector] = sums ? 2 : 1;
            if (sums)
                load_sums(lane, of(vector));
            else
                load_words(head, lane, of(vector));
            for (size_t i = 0; i < terms_[vector] * tiles_; ++i)
                Numbers::transpose(of(vector) + i * Numbers::words);
            if constexpr (has_codes) load_scales(head, lane, column + lane, deltas);
        }
    }

    /// Zeros for the 16 columns from `column` on, which are no keys.
    void clear(size_t column) {
        terms_[column / side] = 1;
        for (size_t i = 0; i < tiles_ * Numbers::words; i += L)
            V::store(of(column / side) + i, V::zero());
        if constexpr (!has_codes) return;
        V::store(scales_ + column, V::zero());
        V::store(minima_ + column, V::zero());
    }

private:
    void load_sums(size_t lane, float* to) const {
        const size_t apart = tiles_ * Numbers::words;
        for (size_t d = 0; d < tiles_ * depth; d += 2, to += L) {
            const bool exists = d < key_size_;
            const float* from = floats_ + d * block_ + lane;
            Numbers::store_sums(to, apart, exists ? V::load(from) : V::zero(),
                                exists ? V::load(from + block_) : V::zero());
        }
    }

    void load_words(const uint8_t* head, size_t lane, float* to) const {
        const auto* words = reinterpret_cast<const uint32_t*>(head) + lane;
        constexpr size_t pairs = T::dims_per_word / 2;
        const float* end = to + tiles_ * Numbers::words;
        for (size_t w = 0; w < tile_.layout.key_words(); ++w, words += block_, to += pairs * L) {
            const Words word = V::load_words(words);
            unrolled<pairs>([&](auto i) PAGEWHEEL_INLINE {
                Numbers::store(to + i * L, T::template element<V, 2 * i>(word),
                               T::template element<V, 2 * i + 1>(word));
            });
        }
        for (; to < end; to += L) V::store(to, V::zero());
    }

    /// x = code * scale + minimum; rotated keys are no codes any more.
    void load_scales(const uint8_t* head, size_t lane, size_t column, bool rotated) {
        const auto* scales =
            reinterpret_cast<const uint32_t*>(head) + tile_.layout.key_words() * block_;
        const Words words = V::load_words(scales + lane);
        V::store(scales_ + column, rotated ? V::set(1) : scale_of<V>(words));
        V::store(minima_ + column, rotated ? V::zero() : minimum_of<V>(words));
    }

    const typename Numbers::Tile& tile_;
    BlockUnpacker<V, Format> unpacker_;
    size_t block_, key_size_, tiles_;
    float* keys_;    // words of two bf16 numbers
    float* floats_;  // [key_size][block_size], of the block at hand
    size_t terms_[Numbers::most_span_keys / side] = {};  // of 16 keys each
    float *scales_ = nullptr, *minima_ = nullptr;        // [columns], of codes
};

/// The span's values, and in tiles of their own what sums the weights as they were rounded.
template <class V, CacheFormat Format>
class TileValues {
    using Numbers = TileNumbers<V>;
    using Vec = typename V::F;
    using Words = typename V::I;
    using T = FormatTraits<Format>;
    static constexpr size_t L = V::lanes, side = Numbers::side, depth = Numbers::depth;
    static constexpr bool has_codes = Numbers::has_codes(Format);

public:
    static constexpr size_t terms = Numbers::is_exact(Format) ? 1 : 2;

    TileValues(const typename Numbers::Tile& tile, Scratch<V>& scratch)
        : tile_(tile), unpacker_(tile.layout) {
        block_ = tile.layout.block_size;
        value_size_ = tile.layout.value_size;
        width_ = padded(value_size_);
        const size_t columns = Numbers::span_columns(tile.layout);
        values_ = scratch.take(columns / depth * apart());
        floats_ = scratch.take(terms == 2 ? block_ * width_ : 0);
        shifts_ = has_codes ? scratch.take(columns) : nullptr;
    }

    /// `terms` tiles for each 16 dimensions. Row tiles() of tiles is one tile, which sums.
    size_t tiles() const { return width_ / side; }

    /// The tiles of 32 tokens: [16 dimensions][16 pairs of tokens], 16 dimensions after another.
    const float* of(size_t tokens) const { return values_ + tokens * apart(); }
    /// From those to the next 32 tokens'.
    size_t apart() const { return (tiles() * terms + 1) * Numbers::words; }

    // Of the rows of tile tiles(): the first ones (one, or two numbers whose sum is meant) sum
    // the probabilities. Over codes the other two sum what is added to each dimension.
    static constexpr size_t sum_terms = has_codes ? 2 : 1;

    /// Weights of codes are the probabilities times the value's scale: its logarithm.
    Vec shift(size_t column) const { return V::set(shifts_[column]); }

    /// A span begins.
    void begin(size_t columns) const {
        for (size_t c = 0; c < columns; c += depth)
            for (size_t i = 0; i < Numbers::words; i += L) V::store(sums_of(c) + i, V::zero());
    }

    /// A block, from `column` of the span on. Tokens that no row sees are zeros. They may never
    /// have been written, and 0 times a NaN is one.
    void load(size_t block, size_t column) const {
        const size_t tokens = tile_.tokens_of(block);
        const uint8_t* head = tile_.values_of(block);
        if constexpr (Numbers::is_exact(Format)) {
            load_words(head, tokens, column);
        } else {
            unpacker_.values(head, tokens, width_, floats_);
            load_sums(tokens, column);
        }
        clear(column + (tokens + 3) / 4 * 4, column + block_);
        for (size_t t = 0; t < block_; t += L)
            weigh_probabilities(head, t, tokens > t ? tokens - t : 0, column + t);
    }

    /// Zeros for columns [begin, end) of the span, both even.
    void clear(size_t begin, size_t end) const {
        for (size_t c = begin; c < end; c += 2)
            for (size_t d = 0; d < width_; d += L)
                for (size_t term = 0; term < terms; ++term)
                    V::store(pairs(d, c) + term * Numbers::words, V::zero());
    }

    /// All of the span's [0, columns) are there.
    void end(size_t columns) const {
        for (size_t c = 0; c < columns; c += depth)
            for (size_t i = 0; i < tiles() * terms; ++i)
                Numbers::transpose(values_ + c / depth * apart() + i * Numbers::words);
    }

private:
    float* sums_of(size_t column) const {
        return values_ + column / depth * apart() + tiles() * terms * Numbers::words;
    }

    /// Before end() tiles are [16 pairs of tokens][16 dimensions]: the pair of tokens that begins
    /// with `column`, dimensions from `d` on.
    float* pairs(size_t d, size_t column) const {
        return values_ + column / depth * apart() + d / side * terms * Numbers::words +
               column % depth / 2 * side;
    }

    void load_sums(size_t tokens, size_t column) const {
        for (size_t t = 0; t < (tokens + 3) / 4 * 4; t += 2)
            for (size_t d = 0; d < width_; d += L) {
                const float* from = floats_ + t * width_ + d;
                Numbers::store_sums(pairs(d, column + t), Numbers::words,
                                    t < tokens ? V::load(from) : V::zero(),
                                    t + 1 < tokens ? V::load(from + width_) : V::zero());
            }
    }

    void load_words(const uint8_t* head, size_t tokens, size_t column) const {
        const auto* words = reinterpret_cast<const uint32_t*>(head);
        constexpr size_t in_word = T::tokens_per_word;
        for (size_t t = 0; t < (tokens + 3) / 4 * 4; t += in_word, words += value_size_)
            for (size_t d = 0; d < width_; d += L) {
                const Words word = V::load_words(words + d, V::mask(value_size_ - d));
                unrolled<in_word / 2>([&](auto i) PAGEWHEEL_INLINE {
                    const Vec a = T::template element<V, 2 * i>(word);
                    const Vec b = T::template element<V, 2 * i + 1>(word);
                    const size_t token = t + 2 * i;
                    Numbers::store(pairs(d, column + token), token < tokens ? a : V::zero(),
                                   token + 1 < tokens ? b : V::zero());
                });
            }
    }

    /// What the weights of 16 tokens, from `t` of the block on, are multiplied by; 0 for those
    /// that are not the first `seen`. Over codes, value = (code + minimum / scale) * scale.
    void weigh_probabilities(const uint8_t* head, size_t t, size_t seen, size_t column) const {
        auto* rows = reinterpret_cast<uint16_t*>(sums_of(column)) + column % depth;
        const auto mask = V::mask(seen);
        if constexpr (has_codes) {
            const CacheLayout& layout = tile_.layout;
            const auto* scales = reinterpret_cast<const uint32_t*>(head) +
                                 layout.value_rows() * layout.value_row_words();
            const Words words = V::load_words(scales + t, mask);
            const Vec scale = scale_of<V>(words);
            V::store(shifts_ + column, simd::log2<V>(scale));
            // Of an infinite scale this is no number, and neither is the sum then.
            const Vec inverse = V::fma(scale, V::zero(), V::div(V::set(1), scale));
            put_sum(rows, V::zero_unless(mask, inverse));
            put_sum(rows + 2 * depth, V::zero_unless(mask, V::mul(minimum_of<V>(words), inverse)));
        } else {
            V::store_halves(rows, V::to_bf16(V::zero_unless(mask, V::set(1))), L);
        }
        (void)head, (void)t;
    }

    /// In two rows: x as the sum of two bf16 numbers.
    static void put_sum(uint16_t* rows, Vec x) {
        const auto first = V::to_bf16(x);
        V::store_halves(rows, first, L);
        V::store_halves(rows + depth, V::to_bf16(V::sub(x, V::bf16_to_float(first))), L);
    }

    const typename Numbers::Tile& tile_;
    BlockUnpacker<V, Format> unpacker_;
    size_t block_, value_size_, width_;
    float* values_;            // words of two bf16 numbers
    float* floats_;            // [block_size][width_], of the block at hand
    float* shifts_ = nullptr;  // [columns], of codes
};

}  // namespace pagewheel::kernels::amx
