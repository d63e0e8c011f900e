// Attention over a tile of many rows, written once for every vector ISA. For any V
// (simd/vectors.hpp).
//
// Rows go in groups (PrefillTile). For a span of keys and a group, logits, softmax and the product
// with the values follow each other while everything lies in the L1 cache (FlashAttention-2, Dao
// 2023). Logits are in powers of two: log2(e) is multiplied into the queries.
#pragma once

#include "kernels/attention/prefill_float.hpp"
#include "kernels/simd/math.hpp"

namespace pagewheel::kernels {

/// Softmax between `Products`, over all spans.
template <class V, class Products>
class PrefillKernel {
    using Vec = typename V::F;
    using Tile = typename Products::Tile;
    static constexpr size_t L = V::lanes, R = Tile::group_rows;

public:
    static constexpr bool rounds_to_bf16 = Products::rounds_to_bf16;
    static constexpr size_t tile_rows = prefill_tile_rows;

    static size_t scratch_floats(const AttentionConfig& config, size_t rows) {
        Scratch<V> scratch(nullptr);
        const Tile tile(config, rows);
        PrefillKernel kernel(tile, scratch);
        return scratch.used();
    }

    static void attend(const AttentionConfig& config, const AttentionBatch& batch,
                       const AttentionTile& tile, const TileResult& result, float* memory) {
        Scratch<V> scratch(memory);
        const Tile view(config, batch, tile);
        PrefillKernel(view, scratch).attend(result);
    }

private:
    PrefillKernel(const Tile& tile, Scratch<V>& scratch) : tile_(tile), products_(tile, scratch) {
        const size_t block = tile.layout.block_size;
        span_blocks_ = Products::span_tokens > block ? Products::span_tokens / block : 1;
        logits_ = scratch.take(R * max_span);
        maximum_ = scratch.take(tile.groups * R);
        sum_ = scratch.take(tile.groups * R);
    }

    void attend(const TileResult& result) {
        const size_t width = padded(tile_.layout.value_size), block = tile_.layout.block_size;
        for (size_t i = 0; i < tile_.rows * width; i += L) V::store(result.acc + i, V::zero());
        for (size_t r = 0; r < tile_.groups * R; ++r) maximum_[r] = lowest, sum_[r] = 0;
        products_.load_queries();
        const size_t last = tile_.tile->block_end;
        for (size_t b = tile_.tile->block_begin; b < last; b += span_blocks_) {
            const size_t end = b + span_blocks_ < last ? b + span_blocks_ : last;
            products_.load_span(b, end);
            for (size_t group = 0; group < tile_.groups; ++group)
                attend_group(group, b * block, end * block, result.acc + group * R * width);
        }
        for (size_t r = 0; r < tile_.rows; ++r) {
            result.maximum[r] = maximum_[r] * 0.69314718056f;
            result.sum[r] = sum_[r];
        }
    }

    void attend_group(size_t group, size_t first_key, size_t end_key, float* acc) {
        const size_t first_row = group * R, last_row = first_row + R - 1;
        const size_t next = tile_.position(last_row) + 1;
        const size_t stop = next < end_key ? next : end_key;
        const size_t start = tile_.window_begin(first_row, first_key);
        if (stop <= start) return;
        const size_t begin = (start - first_key) / L * L, high = stop - first_key;
        const size_t end = (high + L - 1) / L * L;
        products_.logits(group, begin, end, logits_);
        if (tile_.config.soft_cap > 0)
            simd::soft_cap<V>(logits_, R, max_span, begin, end, tile_.config.soft_cap);
        if (tile_.batch->alibi_slopes) add_bias(first_row, first_key, begin, end);
        if (tile_.position(first_row) + 1 < first_key + end ||
            tile_.window_begin(last_row, first_key) > first_key + begin)
            hide(first_row, first_key, begin, end);
        softmax(first_row, begin, end);
        const size_t live = tile_.rows - first_row < R ? tile_.rows - first_row : R;
        products_.weigh(begin, high, correction_, factor_, acc, live);
    }

    void add_bias(size_t first_row, size_t first_key, size_t begin, size_t end) {
        for (size_t r = 0; r < R; ++r) {
            const size_t row = first_row + r < tile_.rows ? first_row + r : tile_.rows - 1;
            const Vec slope =
                V::set(tile_.batch->alibi_slopes[tile_.head_of(row)] * 1.44269504089f);
            const float start =
                static_cast<float>(first_key) - static_cast<float>(tile_.position(row));
            float* logits = logits_ + r * max_span;
            for (size_t c = begin; c < end; c += L) {
                const Vec distance = V::add(V::iota(), V::set(start + static_cast<float>(c)));
                V::store(logits + c, V::fma(slope, distance, V::load(logits + c)));
            }
        }
    }

    /// Hides what the rows do not see among columns [begin, end).
    void hide(size_t first_row, size_t first_key, size_t begin, size_t end) {
        for (size_t r = 0; r < R; ++r) {
            const size_t next = tile_.position(first_row + r) + 1;
            const size_t high = next > first_key ? next - first_key : 0;
            const size_t low = tile_.window_begin(first_row + r, first_key) - first_key;
            float* logits = logits_ + r * max_span;
            for (size_t c = begin; c < end; c += L) {
                if (c >= low && c + L <= high) continue;
                const auto mask = V::mask(low > c ? low - c : 0, high > c ? high - c : 0);
                V::store(logits + c, V::select(mask, V::load(logits + c), V::set(hidden)));
            }
        }
    }

    /// Gives the products the probabilities under each row's largest logit in [begin, end), and
    /// brings the rows' maxima and sums up to date.
    void softmax(size_t first_row, size_t begin, size_t end) {
        Vec rows[R];
        float found[padded(R)] = {};  // the span's maxima
        for (size_t r = 0; r < R; ++r) {
            const float* logits = logits_ + r * max_span;
            Vec largest = V::set(lowest);
            for (size_t c = begin; c < end; c += L) largest = V::max(largest, V::load(logits + c));
            rows[r] = largest;
        }
        V::reduce_maxima(rows, found);
        for (size_t r = 0; r < R; ++r) {
            const float* logits = logits_ + r * max_span;
            typename Products::Row row(products_, r);
            const Vec subtracted = V::set(found[r]);
            Vec sum = V::zero();
            for (size_t c = begin; c < end; c += L) {
                const Vec p = Products::exp2(V::sub(V::load(logits + c), subtracted));
                sum = V::add(sum, row.put(c, p));
            }
            row.end();
            rows[r] = sum;
        }
        float sums[padded(R)] = {};
        V::reduce_sums(rows, sums);
        for (size_t r = 0; r < R; r += L) {
            const auto mask = V::mask(R - r);
            float *maximum = maximum_ + first_row + r, *sum = sum_ + first_row + r;
            const Vec before = V::load(maximum, mask), of_span = V::load(found + r);
            const Vec now = V::max(before, of_span);
            const Vec correction = V::exp2(V::sub(before, now));
            const Vec factor = V::exp2(V::sub(of_span, now));
            V::store(correction_ + r, correction);
            V::store(factor_ + r, factor);
            V::store(maximum, now, mask);
            V::store(sum, V::fma(V::load(sums + r), factor, V::mul(V::load(sum, mask), correction)),
                     mask);
        }
    }

    static constexpr float hidden = -3e38f;  // below every logit
    static constexpr float lowest = -1e30f;  // the maximum of no keys; far above `hidden`

    const Tile& tile_;
    Products products_;
    size_t span_blocks_;
    float* logits_;          // [group_rows, max_span]; after softmax(), probabilities
    float *maximum_, *sum_;  // [groups * group_rows]
    // Of a group's rows: what the new maximum makes of the sums before, and of the span's.
    float correction_[padded(R)], factor_[padded(R)];
};

/// The calls of ISA V; `Kernel` is its class for a format.
template <class V, template <CacheFormat> class Kernel>
PrefillKernels prefill_kernels_of(CacheFormat format) {
    return for_format<V>(format, [](auto f) {
        using K = Kernel<f>;
        return PrefillKernels{K::scratch_floats, K::attend, K::rounds_to_bf16, K::tile_rows};
    });
}

}  // namespace pagewheel::kernels
