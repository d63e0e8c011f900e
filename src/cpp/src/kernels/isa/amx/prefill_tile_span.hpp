// The keys and values of a span in bf16, as the tiles of a product hold them (kernels/tiles.hpp).
#pragma once

#include "kernels/attention/prefill_float.hpp"
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
    static constexpr size_t span_tiles = max_span / depth;  // along the tokens of a span
    static_assert(V::lanes == side && Tile::group_rows == 2 * side);

    /// Formats that bf16 holds: u8 as codes. The others are sums of two bf16 numbers.
    static constexpr bool has_codes(CacheFormat format) { return format == CacheFormat::u8; }
    static constexpr bool is_exact(CacheFormat format) {
        return has_codes(format) || format == CacheFormat::bf16;
    }

    static Vec rounded(Vec x) { return V::bf16_to_float(V::to_bf16(x)); }

    /// Of each lane a word: `first` along k, then `second`.
    static void store(float* to, Vec first, Vec second) {
        const Words low = V::template shift_right<16>(V::as_words(first));
        V::store(to, V::as_float(V::add_words(low, V::as_words(second))));
    }
    /// The same of numbers that are no bf16: what is nearest, and `apart` from it what that left.
    static void store_sums(float* to, size_t apart, Vec first, Vec second) {
        const Vec a = rounded(first), b = rounded(second);
        store(to, a, b);
        store(to + apart, rounded(V::sub(first, a)), rounded(V::sub(second, b)));
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
        keys_ = scratch.take(max_span / side * 2 * tiles_ * Numbers::words);
        floats_ = scratch.take(block_ * key_size_);
        if constexpr (!has_codes) return;
        scales_ = scratch.take(max_span);
        minima_ = scratch.take(max_span);
    }

    /// Along a head.
    size_t tiles() const { return tiles_; }

    /// Of 16 keys: [2 terms][tiles()] of tiles [16 pairs of dimensions][16 keys]
    float* of(size_t vector) const { return keys_ + vector * 2 * tiles_ * Numbers::words; }

    /// Of these: 1, or 2 if they are sums.
    size_t terms(size_t vector) const { return terms_[vector]; }

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
            if constexpr (has_codes) load_scales(head, lane, column + lane, deltas);
        }
    }

    /// Of a row, [begin, end): products with codes become logits. `query_sum` is of the query's
    /// dimensions.
    void scale_logits(float query_sum, size_t begin, size_t end, float* row) const {
        const Vec sum = V::set(query_sum);
        for (size_t c = begin; c < end; c += L) {
            const Vec minimum = V::mul(V::load(minima_ + c), sum);
            V::store(row + c, V::fma(V::load(row + c), V::load(scales_ + c), minimum));
        }
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
    float* keys_;                                  // words of two bf16 numbers
    float* floats_;                                // [key_size][block_size], of the block at hand
    size_t terms_[max_span / side] = {};           // of 16 keys each
    float *scales_ = nullptr, *minima_ = nullptr;  // [max_span], of codes
};

/// The span's values.
template <class V, CacheFormat Format>
class TileValues {
    using Numbers = TileNumbers<V>;
    using Vec = typename V::F;
    using Words = typename V::I;
    using T = FormatTraits<Format>;
    static constexpr size_t L = V::lanes, side = Numbers::side, depth = Numbers::depth;
    static constexpr size_t span_tiles = Numbers::span_tiles;
    static constexpr bool has_codes = Numbers::has_codes(Format);

public:
    static constexpr size_t terms = Numbers::is_exact(Format) ? 1 : 2;

    TileValues(const typename Numbers::Tile& tile, Scratch<V>& scratch)
        : tile_(tile), unpacker_(tile.layout) {
        block_ = tile.layout.block_size;
        value_size_ = tile.layout.value_size;
        width_ = padded(value_size_);
        values_ = scratch.take(width_ / side * terms * span_tiles * Numbers::words);
        floats_ = scratch.take(terms == 2 ? block_ * width_ : 0);
        if constexpr (!has_codes) return;
        scales_ = scratch.take(max_span);
        inverse_scales_ = scratch.take(max_span);
        zeros_ = scratch.take(max_span);
    }

    /// Of 16 dimensions each.
    size_t panels() const { return width_ / side; }

    /// Tile `tile` along the tokens.
    const float* of(size_t panel, size_t term, size_t tile) const {
        return pairs(panel * side, tile * depth) + term * span_tiles * Numbers::words;
    }

    // Of codes, value = (code - zero) * scale, from `column` on; 0 for tokens that no row sees.
    Vec scale(size_t column) const { return V::load(scales_ + column); }
    Vec inverse_scale(size_t column) const { return V::load(inverse_scales_ + column); }
    Vec zero(size_t column) const { return V::load(zeros_ + column); }

    /// A block, from `column` of the span on. Tokens that no row sees are zeros. They may never
    /// have been written, and 0 times a NaN is one.
    void load(size_t block, size_t column) {
        const size_t tokens = tile_.tokens_of(block);
        const uint8_t* head = tile_.values_of(block);
        if constexpr (Numbers::is_exact(Format)) {
            load_words(head, tokens, column);
        } else {
            unpacker_.values(head, tokens, width_, floats_);
            load_sums(tokens, column);
        }
        clear(column + (tokens + 3) / 4 * 4, column + block_);
        if constexpr (has_codes) load_scales(head, tokens, column);
    }

    /// Zeros for columns [begin, end) of the span, both even.
    void clear(size_t begin, size_t end) const {
        for (size_t c = begin; c < end; c += 2)
            for (size_t d = 0; d < width_; d += L)
                for (size_t term = 0; term < terms; ++term)
                    V::store(pairs(d, c) + term * span_tiles * Numbers::words, V::zero());
    }

private:
    /// values_ [width_ / 16][terms][span_tiles] of tiles [16 pairs of tokens][16 dimensions]:
    /// the pair of tokens that begins with `column`, dimensions from `d` on.
    float* pairs(size_t d, size_t column) const {
        return values_ + (d / side * terms * span_tiles + column / depth) * Numbers::words +
               column % depth / 2 * side;
    }

    void load_sums(size_t tokens, size_t column) const {
        constexpr size_t apart = span_tiles * Numbers::words;
        for (size_t t = 0; t < (tokens + 3) / 4 * 4; t += 2)
            for (size_t d = 0; d < width_; d += L) {
                const float* from = floats_ + t * width_ + d;
                Numbers::store_sums(pairs(d, column + t), apart,
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

    void load_scales(const uint8_t* head, size_t tokens, size_t column) const {
        const CacheLayout& layout = tile_.layout;
        const auto* scales = reinterpret_cast<const uint32_t*>(head) +
                             layout.value_rows() * layout.value_row_words();
        for (size_t t = 0; t < block_; t += L) {
            const auto seen = V::mask(tokens > t ? tokens - t : 0);
            const Words words = V::load_words(scales + t, seen);
            const Vec scale = scale_of<V>(words);
            const Vec inverse = V::zero_unless(seen, V::div(V::set(1), scale));
            const Vec minimum = minimum_of<V>(words);
            V::store(scales_ + column + t, scale);
            V::store(inverse_scales_ + column + t, inverse);
            V::store(zeros_ + column + t, V::mul(V::sub(V::zero(), minimum), inverse));
        }
    }

    const typename Numbers::Tile& tile_;
    BlockUnpacker<V, Format> unpacker_;
    size_t block_, value_size_, width_;
    float* values_;  // words of two bf16 numbers
    float* floats_;  // [block_size][width_], of the block at hand
    float *scales_ = nullptr, *inverse_scales_ = nullptr, *zeros_ = nullptr;  // [max_span]
};

}  // namespace pagewheel::kernels::amx
