// The queries of one tile, as they are and rotated by rotation deltas. For any V
// (simd/vectors.hpp).
#pragma once

#include "kernels/attention/decode_float.hpp"
#include "kernels/attention/scratch.hpp"

namespace pagewheel::kernels {

/// Logits are in powers of two inside the kernels.
constexpr float log2_e = 1.44269504089f, ln_2 = 0.69314718056f;

/// Queries of the tile's kv heads, `rows` each. `A` is the arithmetic they are prepared for.
template <class V, class A>
class TileQueries {
    using Vec = typename V::F;
    static constexpr size_t L = V::lanes;

public:
    TileQueries(const AttentionConfig& config, size_t rows, size_t kv_heads, Scratch<V>& scratch)
        : config_(config), rows_(rows), ratio_(config.heads / config.layout.kv_heads) {
        stride_ = (config.layout.key_size + 63) / 64 * 64;
        plain_ = take(kv_heads, scratch);
        rotated_ = take(kv_heads, scratch);
        rotated_by_ = scratch.template take<int32_t>(kv_heads);
    }

    void load(const AttentionBatch& batch, const AttentionTile& tile) {
        batch_ = &batch;
        for (size_t h = 0; h < tile.kv_heads; ++h) {
            load_head(tile, h);
            A::prepare_queries(plain(h), rows_);
            rotated_by_[h] = -1;
        }
    }

    /// Of kv head `head` of the tile.
    PreparedQueries plain(size_t head) const { return of_head(plain_, head); }

    /// The same, rotated up by row `delta` of the LUT; good until the head's next delta.
    PreparedQueries rotated(size_t head, int32_t delta) {
        const PreparedQueries from = plain(head), to = of_head(rotated_, head);
        if (rotated_by_[head] == delta) return to;
        rotated_by_[head] = delta;
        const float* row = batch_->tables.rotation_trig_lut.values +
                           static_cast<size_t>(delta) * config_.rotary_dims;
        if (config_.interleaved)
            rotate_pairs(from.floats, row, to.floats);
        else
            rotate_halves(from.floats, row, to.floats);
        A::prepare_queries(to, rows_);
        return to;
    }

private:
    PreparedQueries take(size_t kv_heads, Scratch<V>& scratch) const {
        const size_t floats = kv_heads * rows_ * stride_;
        return {stride_,
                scratch.take(floats),
                scratch.take(floats / 16),
                scratch.take(kv_heads * rows_),
                scratch.template take<int8_t>(floats),
                scratch.template take<int8_t>(floats)};
    }

    PreparedQueries of_head(PreparedQueries q, size_t head) const {
        const size_t at = head * rows_ * stride_;
        return {q.stride,    q.floats + at, q.sums + at / 16, q.unit + head * rows_,
                q.high + at, q.low + at};
    }

    void load_head(const AttentionTile& tile, size_t h) {
        const PreparedQueries q = plain(h);
        const size_t size = config_.layout.key_size;
        const auto row = [&](size_t r) {
            const size_t head = (tile.kv_head + h) * ratio_ + r % ratio_;
            return batch_->query + ((tile.token_begin + r / ratio_) * config_.heads + head) * size;
        };
        // Rotation lengthens no pair, so no element grows by more than the square root of 2.
        const float growth = batch_->tables.rotated_block_indices.size > 0 ? 1.41422f : 1.0f;
        const float scale = config_.scale * log2_e, size_of_scale = scale < 0 ? -scale : scale;
        const PreparedQueries to_be_rotated = of_head(rotated_, h);
        for (size_t r = 0; r < rows_; ++r) {
            const float* from = row(r);
            Vec largest = V::zero();
            for (size_t d = 0; d < size; d += L)
                largest = V::max(largest, V::abs(V::load(from + d, V::mask(size - d))));
            q.unit[r] = to_be_rotated.unit[r] =
                A::unit(V::reduce_max(largest) * size_of_scale * growth);
            const Vec factor = V::set(scale / q.unit[r]);
            for (size_t d = 0; d < stride_; d += L) {
                const Vec x =
                    d < size ? V::mul(V::load(from + d, V::mask(size - d)), factor) : V::zero();
                V::store(q.floats + r * stride_ + d, x);
                // For the dimensions that do not rotate.
                V::store(to_be_rotated.floats + r * stride_ + d, x);
            }
        }
    }

    /// Pairs (i, i + half) of all rows.
    void rotate_halves(const float* from, const float* cosines, float* __restrict to) const {
        const size_t half = config_.rotary_dims / 2;
        for (size_t i = 0; i < half; i += L) {
            const auto mask = V::mask(half - i);
            const Vec c = V::load(cosines + i, mask), s = V::load(cosines + half + i, mask);
            for (size_t at = i; at < rows_ * stride_; at += stride_) {
                const Vec a = V::load(from + at, mask), b = V::load(from + at + half, mask);
                V::store(to + at, V::fnma(b, s, V::mul(a, c)), mask);
                V::store(to + at + half, V::fma(a, s, V::mul(b, c)), mask);
            }
        }
    }

    /// Pairs (2i, 2i + 1).
    void rotate_pairs(const float* from, const float* cosines, float* __restrict to) const {
        const size_t half = config_.rotary_dims / 2;
        for (size_t i = 0; i < half; i += L / 2) {
            const auto mask = V::mask(half - i < L / 2 ? 2 * (half - i) : L);
            const auto in_row = V::mask(half - i);
            const Vec c = V::twice(V::load(cosines + i, in_row));
            const Vec s = V::twice(V::load(cosines + half + i, in_row));
            for (size_t at = 2 * i; at < rows_ * stride_; at += stride_) {
                const Vec x = V::load(from + at, mask);
                V::store(to + at, V::fmaddsub(x, c, V::mul(V::swapped(x), s)), mask);
            }
        }
    }

    const AttentionConfig& config_;
    const AttentionBatch* batch_ = nullptr;
    size_t rows_, ratio_, stride_;
    PreparedQueries plain_, rotated_;
    int32_t* rotated_by_;  // [kv_heads]: the delta rotated_ is at, or -1
};

}  // namespace pagewheel::kernels
