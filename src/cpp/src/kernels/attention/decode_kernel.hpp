// Attention over one tile of few rows, written once for every vector ISA and cache format: keys and
// values are read as they lie in the cache, which is what decoding spends its time on. For any V
// (simd/vectors.hpp).
#pragma once

#include "kernels/attention/decode_logits.hpp"
#include "kernels/attention/decode_span.hpp"
#include "kernels/attention/decode_values.hpp"
#include "kernels/attention/write.hpp"
#include "kernels/simd/encoder.hpp"

namespace pagewheel::kernels {

/// One tile. `A` is the arithmetic. Keys are read a span at a time; head after head computes the
/// span's logits, softmax and product with the values, while the next span is fetched.
template <class V, CacheFormat Format, class A>
class TileKernel {
    using Vec = typename V::F;
    static constexpr size_t L = V::lanes;

public:
    static size_t scratch_floats(const AttentionConfig& config, size_t rows, size_t kv_heads) {
        Scratch<V> scratch(nullptr);
        TileKernel kernel(config, rows, kv_heads, scratch);
        return scratch.used();
    }

    static void attend(const AttentionConfig& config, const AttentionBatch& batch,
                       const AttentionTile& tile, const TileResult& result, float* memory) {
        Scratch<V> scratch(memory);
        TileKernel kernel(config, batch, tile, scratch);
        kernel.attend(result);
    }

    static void score(const AttentionConfig& config, const AttentionBatch& batch,
                      const AttentionTile& tile, const RowStatistics* statistics, float* scores,
                      float* memory) {
        Scratch<V> scratch(memory);
        TileKernel kernel(config, batch, tile, scratch);
        kernel.score(statistics, scores);
    }

private:
    TileKernel(const AttentionConfig& config, size_t rows, size_t kv_heads, Scratch<V>& scratch)
        : config_(config),
          rows_(rows),
          ratio_(config.heads / config.layout.kv_heads),
          block_(config.layout.block_size),
          width_((span_blocks(block_) * block_ + 63) / 64 * 64),
          span_(config),
          span_logits_(config, span_, rows, kv_heads, width_, scratch),
          span_values_(config, span_, rows, width_, scratch) {
        logits_ = scratch.take(rows_ * width_);
        correction_ = scratch.take(rows_);
        factor_ = scratch.take(rows_);
        span_maximum_ = scratch.take(rows_);
    }

    TileKernel(const AttentionConfig& config, const AttentionBatch& batch,
               const AttentionTile& tile, Scratch<V>& scratch)
        : TileKernel(config, tile.rows(config.heads / config.layout.kv_heads), tile.kv_heads,
                     scratch) {
        batch_ = &batch;
        tile_ = &tile;
        const size_t s = tile.sequence;
        first_position_ = static_cast<size_t>(batch.tables.past_lens[s]) + tile.token_begin -
                          static_cast<size_t>(batch.tables.subsequence_begins[s]);
        span_.read(batch, tile);
        span_logits_.read(batch, tile);
    }

    /// Keys [low, high) of the span are what the row sees.
    struct Visible {
        size_t low, high;
    };
    Visible visible(size_t row) const {
        const size_t next = first_position_ + row / ratio_ + 1;
        Visible v{0, next < span_.first_key ? 0 : next - span_.first_key};
        if (v.high > span_.keys) v.high = span_.keys;
        if (config_.sliding_window && next > config_.sliding_window + span_.first_key)
            v.low = next - config_.sliding_window - span_.first_key;
        if (v.low > v.high) v.low = v.high;
        return v;
    }

    /// Adds the position's bias, hides what the row does not see; returns the largest logit.
    Vec mask_row(size_t head, size_t row) {
        const Visible v = visible(row);
        float* logits = logits_ + row * width_;
        float slope = 0, start = 0;
        if (batch_->alibi_slopes) {
            slope = batch_->alibi_slopes[(tile_->kv_head + head) * ratio_ + row % ratio_] * log2_e;
            start = static_cast<float>(span_.first_key) -
                    static_cast<float>(first_position_ + row / ratio_);
        }
        Vec largest = V::set(hidden);
        for (size_t c = 0; c < span_.keys; c += L) {
            Vec x = V::load(logits + c);
            const bool partly = c < v.low || c + L > v.high;
            if (slope != 0)
                x = V::fma(V::set(slope), V::add(V::iota(), V::set(start + static_cast<float>(c))),
                           x);
            if (partly)
                x = V::select(V::mask(v.low > c ? v.low - c : 0, v.high > c ? v.high - c : 0), x,
                              V::set(hidden));
            if (partly || slope != 0) V::store(logits + c, x);
            largest = V::max(largest, x);
        }
        return largest;
    }

    /// logits_ become probabilities under the span's maximum, zeros up to a multiple of 16 keys;
    /// correction_ and factor_ what the maximum of all spans makes of those before and of these.
    void softmax(size_t head, float* maximum, float* sum) {
        span_values_.begin_head();
        for (size_t r = 0; r < rows_; ++r) {
            const float largest = V::reduce_max(mask_row(head, r));
            span_values_.fetch(head, 4);
            span_maximum_[r] = largest > lowest ? largest : lowest;
            const float now = span_maximum_[r] > maximum[r] ? span_maximum_[r] : maximum[r];
            correction_[r] = maximum[r] - now;
            factor_[r] = span_maximum_[r] - now;
            maximum[r] = now;
        }
        for (size_t r = 0; r < rows_; r += L) {
            V::store(correction_ + r, V::exp2(V::load(correction_ + r)));
            V::store(factor_ + r, V::exp2(V::load(factor_ + r)));
        }
        for (size_t r = 0; r < rows_; ++r) {
            float* logits = logits_ + r * width_;
            const Vec largest = V::set(span_maximum_[r]);
            Vec total = V::zero();
            size_t c = 0;
            for (; c < span_.keys; c += L) {
                const Vec p = V::exp2(V::sub(V::load(logits + c), largest));
                V::store(logits + c, p);
                total = V::add(total, p);
                if (c % (2 * L) == 0) span_values_.fetch(head, 1);
            }
            for (; c < padded(span_.keys); c += L) V::store(logits + c, V::zero());
            sum[r] = sum[r] * correction_[r] + V::reduce_sum(total) * factor_[r];
        }
    }

    // ---- the two passes

    void attend(const TileResult& result) {
        const size_t all = tile_->kv_heads * rows_, width = padded(config_.layout.value_size);
        for (size_t r = 0; r < all; ++r) result.maximum[r] = lowest, result.sum[r] = 0;
        for (size_t i = 0; i < all * width; i += L) V::store(result.acc + i, V::zero());
        float* kept = result.kept;
        for (size_t b = tile_->block_begin; b < tile_->block_end; b += span_blocks(block_)) {
            span_.enter(b);
            span_logits_.enter_span();
            for (size_t h = 0; h < tile_->kv_heads; ++h) {
                const size_t at = h * rows_;
                span_logits_.compute(h, logits_);
                softmax(h, result.maximum + at, result.sum + at);
                if (kept) kept = keep(kept);
                span_values_.add(h, logits_, correction_, factor_, result.acc + at * width);
            }
        }
        for (size_t r = 0; r < all; ++r) result.maximum[r] *= ln_2;
    }

    /// Appends the head's probabilities in the span and the maximum they are under.
    float* keep(float* to) const {
        const size_t columns = padded(span_.keys);
        for (size_t r = 0; r < rows_; ++r) {
            *to = span_maximum_[r] * ln_2;
            to += 16;
            for (size_t c = 0; c < columns; c += L)
                V::store(to + c, V::load(logits_ + r * width_ + c));
            to += columns;
        }
        return to;
    }

    void score(const RowStatistics* statistics, float* scores) {
        for (size_t b = tile_->block_begin; b < tile_->block_end; b += span_blocks(block_)) {
            span_.enter(b);
            span_logits_.enter_span();
            for (size_t h = 0; h < tile_->kv_heads; ++h) {
                span_logits_.compute(h, logits_);
                for (size_t r = 0; r < rows_; ++r) {
                    const RowStatistics& row = statistics[h * rows_ + r];
                    const Vec maximum = V::set(row.maximum * log2_e);
                    mask_row(h, r);
                    for (size_t c = 0; c < span_.keys; c += L) {
                        const auto mask = V::mask(span_.keys - c);
                        const Vec p = V::exp2(V::sub(V::load(logits_ + r * width_ + c), maximum));
                        V::store(scores + c,
                                 V::fma(p, V::set(row.inverse_sum), V::load(scores + c, mask)),
                                 mask);
                    }
                }
            }
            scores += span_.keys;
        }
    }

    static constexpr float hidden = -3e38f;  // below every logit
    static constexpr float lowest = -1e30f;  // the maximum of no keys; far above `hidden`

    const AttentionConfig& config_;
    const AttentionBatch* batch_ = nullptr;
    const AttentionTile* tile_ = nullptr;
    size_t rows_, ratio_, block_, width_;  // logits of a row lie in `width_` floats
    size_t first_position_ = 0;            // of the first row
    TileSpan<V, Format> span_;
    SpanLogits<V, Format, A> span_logits_;
    SpanValues<V, Format, A> span_values_;
    float* logits_;                                // [rows, width]; after softmax(), probabilities
    float *correction_, *factor_, *span_maximum_;  // [rows], see softmax()
};

/// DecodeKernels::sum_kept for what TileKernel::keep() wrote.
template <class V>
void sum_kept(const AttentionConfig& config, const AttentionTile& tile, size_t keys,
              const float* kept, const RowStatistics* statistics, float* scores) {
    const size_t rows = tile.kv_heads * tile.rows(config.heads / config.layout.kv_heads);
    const size_t span = span_blocks(config.layout.block_size) * config.layout.block_size;
    for (size_t first = 0; first < keys; first += span) {
        const size_t n = keys - first < span ? keys - first : span, columns = padded(n);
        for (size_t c = 0; c < n; c += V::lanes) V::store(scores + c, V::zero(), V::mask(n - c));
        for (size_t r = 0; r < rows; ++r, kept += 16 + columns) {
            const auto difference = V::set((*kept - statistics[r].maximum) * log2_e);
            const auto factor = V::mul(V::exp2(difference), V::set(statistics[r].inverse_sum));
            for (size_t c = 0; c < n; c += V::lanes) {
                const auto mask = V::mask(n - c);
                V::store(scores + c,
                         V::fma(V::load(kept + 16 + c), factor, V::load(scores + c, mask)), mask);
            }
        }
        scores += n;
    }
}

/// The calls of ISA `V`; `Kernel` is its TileKernel of a format.
template <class V, template <CacheFormat> class Kernel>
constexpr DecodeKernels decode_kernels_of() {
    return {
        [](const AttentionConfig& config, size_t rows, size_t kv_heads) {
            return for_format<V>(config.layout.format, [&](auto format) {
                return Kernel<format>::scratch_floats(config, rows, kv_heads);
            });
        },
        [](const AttentionConfig& config, const AttentionBatch& batch, const AttentionTile& tile,
           const TileResult& result, float* scratch) {
            for_format<V>(config.layout.format, [&](auto format) {
                Kernel<format>::attend(config, batch, tile, result, scratch);
            });
        },
        [](const AttentionConfig& config, const AttentionBatch& batch, const AttentionTile& tile,
           const RowStatistics* statistics, float* scores, float* scratch) {
            for_format<V>(config.layout.format, [&](auto format) {
                Kernel<format>::score(config, batch, tile, statistics, scores, scratch);
            });
        },
        sum_kept<V>, write_token<simd::Encoder<V>>};
}

}  // namespace pagewheel::kernels
