// Keys rotated token by token. For any V (simd/vectors.hpp).
#pragma once

#include "kernels/attention/decode_float.hpp"
#include "kernels/attention/decode_queries.hpp"

namespace pagewheel::kernels {

/// Where every token of a block has a delta of its own it costs less to rotate the keys down than
/// to rotate the queries up for one token at a time. A block's cosines and sines serve all kv
/// heads.
template <class V, CacheFormat Format>
class RotatedKeys {
    using T = FormatTraits<Format>;
    using Vec = typename V::F;
    static constexpr size_t L = V::lanes;

public:
    RotatedKeys(const AttentionConfig& config, Scratch<V>& scratch) : config_(config) {
        block_ = config.layout.block_size;
        angles_ = scratch.take(span_blocks(block_) * config.rotary_dims * block_);
        keys_ = scratch.take((config.layout.key_words() * T::dims_per_word + 1) * L);
    }

    void read(const AttentionBatch& batch) { lut_ = batch.tables.rotation_trig_lut.values; }

    /// Takes over the angles of the tokens of block i of the span.
    void load(size_t i, const int32_t* deltas, size_t tokens) {
        const size_t dims = config_.rotary_dims;
        float* table = table_of(i);
        for (size_t t = 0; t < tokens; t += L) {
            const float* rows[L];
            for (size_t j = 0; j < L; ++j)  // past the tokens, any row
                rows[j] = lut_ + static_cast<size_t>(deltas[t + j < tokens ? t + j : t]) * dims;
            size_t d = 0;
            for (; d + L <= dims; d += L) V::transpose(rows, d, table + d * block_ + t, block_);
            for (; d < dims; ++d)
                for (size_t j = 0; j < L; ++j) table[d * block_ + t + j] = rows[j][d];
        }
    }

    /// Keys as floats, L tokens from `lane` of block i of the span, rotated down by load()'s
    /// angles; good until the next call.
    KeyLanes rotate(const KeyLanes& keys, size_t i, size_t lane) {
        unpack(keys);
        const size_t half = config_.rotary_dims / 2;
        const float* cosines = table_of(i) + lane;
        const float* sines = cosines + half * block_;
        for (size_t p = 0; p < half; ++p) {
            float* a = keys_ + (config_.interleaved ? 2 * p : p) * L;
            float* b = keys_ + (config_.interleaved ? 2 * p + 1 : half + p) * L;
            const Vec c = V::load(cosines + p * block_), s = V::load(sines + p * block_);
            const Vec x = V::load(a), y = V::load(b);
            V::store(a, V::fma(x, c, V::mul(y, s)));
            V::store(b, V::fnma(x, s, V::mul(y, c)));
        }
        return {
            reinterpret_cast<const uint32_t*>(keys_), nullptr, L, config_.layout.key_size, 0, 0};
    }

private:
    float* table_of(size_t i) const { return angles_ + i * config_.rotary_dims * block_; }

    /// keys_ [dimensions][L]
    void unpack(const KeyLanes& keys) {
        for (size_t w = 0; w < keys.key_words; ++w) {
            const uint32_t* words = keys.words + w * block_;
            prefetch_line<0>(words, keys.ahead);
            const auto word = V::load_words(words);
            Vec scale = V::set(1), minimum = V::zero();
            if constexpr (T::quantized) {
                const auto pair = V::load_words(keys.scales + w / T::group_words * block_);
                scale = scale_of<V>(pair), minimum = minimum_of<V>(pair);
            }
            unrolled<T::dims_per_word>([&](auto g) PAGEWHEEL_INLINE {
                Vec x = T::template element<V, g>(word);
                if constexpr (T::quantized) x = V::fma(x, scale, minimum);
                V::store(keys_ + (w * T::dims_per_word + g) * L, x);
            });
        }
    }

    const AttentionConfig& config_;
    const float* lut_ = nullptr;
    size_t block_;
    float* angles_;  // [blocks of a span][rotary_dims][block_size]
    float* keys_;    // [key_size][L]
};

}  // namespace pagewheel::kernels
