// Layers that keep states, for any V (simd/vectors.hpp).
#pragma once

#include <cstddef>
#include <cstring>

#include "kernels/simd/math.hpp"
#include "kernels/simd/vectors.hpp"
#include "kernels/state_kernels.hpp"

namespace pagewheel::kernels::simd {

/// What a chunk's heads whose sizes are whole vectors compute (gated_delta_rule.hpp has the sums).
template <class V, bool by_channel>
class GatedDelta {
public:
    explicit GatedDelta(const GatedDeltaChunk& chunk)
        : m_chunk(chunk),
          m_tokens(chunk.tokens),
          m_keys(chunk.key_size),
          m_width(chunk.value_size) {}

    void run() {
        prepare_rows();
        if constexpr (by_channel)
            prepare_channels();
        else
            prepare_factors();
        const size_t vectors = m_width / V::lanes;
        for_vector_groups<V::columns>(
            0, vectors, [&](auto n, size_t first) { compute_columns<n>(first * V::lanes); });
        if (m_chunk.norm_weight != nullptr)
            for (size_t t = 0; t < m_tokens; ++t) norm_and_gate(t);
    }

private:
    using F = typename V::F;
    static constexpr size_t most = GatedDeltaChunk::max_tokens;
    static constexpr size_t most_size = GatedDeltaRuleConfig::most_size;

    /// The keys' rows and then the queries', divided by their lengths.
    void prepare_rows() {
        const float scale = 1 / __builtin_sqrtf(float(m_keys));
        for (size_t t = 0; t < m_tokens; ++t) {
            prepare_row(m_chunk.keys.row(t), m_chunk.key_epsilon, 1, m_rows + t * m_keys);
            prepare_row(m_chunk.queries.row(t), m_chunk.query_epsilon, scale,
                        m_rows + (m_tokens + t) * m_keys);
        }
    }
    void prepare_row(const float* x, float epsilon, float scale, float* out) const {
        if (epsilon != 0) scale /= __builtin_sqrtf(dot(x, x) + epsilon);
        const F factor = V::set(scale);
        for (size_t i = 0; i < m_keys; i += V::lanes)
            V::store(out + i, V::mul(V::load(x + i), factor));
    }
    float dot(const float* a, const float* b) const {
        F sum = V::zero();
        for (size_t i = 0; i < m_keys; i += V::lanes)
            sum = V::fma(V::load(a + i), V::load(b + i), sum);
        return V::reduce_sum(sum);
    }

    void prepare_factors() {
        float product = 1;
        for (size_t t = 0; t < m_tokens; ++t) m_decays[t] = product *= m_chunk.decays[t];
        for (size_t j = 0; j < m_tokens; ++j) {
            const float* key = m_rows + j * m_keys;
            float decay = 1;  // from token j to t
            for (size_t t = j; t < m_tokens; ++t) {
                if (t > j) {
                    decay *= m_chunk.decays[t];
                    m_of_updates[t][j] = m_chunk.betas[t] * decay * dot(m_rows + t * m_keys, key);
                }
                m_of_outputs[t][j] = decay * dot(m_rows + (m_tokens + t) * m_keys, key);
            }
            m_decays_after[j] = decay;
        }
    }

    /// The same of decays that are vectors: what depends on them goes into the keys' and queries'
    /// rows, and into a second set of keys for the state after the chunk.
    void prepare_channels() {
        for (size_t t = 0; t < m_tokens; ++t) {
            const float* x = m_chunk.channel_decays.row(t);
            const F rate = V::set(m_chunk.decay_rate);
            for (size_t i = 0; i < m_keys; i += V::lanes) {
                F g = V::load(x + i);
                if (m_chunk.decay_bias != nullptr)
                    g = V::mul(rate, softplus<V>(V::add(g, V::load(m_chunk.decay_bias + i))));
                V::store(m_channels + t * m_keys + i, exp_from_below<V>(g));
            }
            m_decays[t] = 1;
        }
        for (size_t j = 0; j < m_tokens; ++j) {
            float* key = m_keys_after + j * m_keys;  // decayed from token j to t
            std::memcpy(key, m_rows + j * m_keys, m_keys * sizeof(float));
            for (size_t t = j; t < m_tokens; ++t) {
                if (t > j) {
                    multiply(key, m_channels + t * m_keys);
                    m_of_updates[t][j] = m_chunk.betas[t] * dot(m_rows + t * m_keys, key);
                }
                m_of_outputs[t][j] = dot(m_rows + (m_tokens + t) * m_keys, key);
            }
        }
        for (size_t t = 0; t < m_tokens; ++t) {
            float* decays = m_channels + t * m_keys;  // becomes exp(G_t)
            if (t > 0) multiply(decays, decays - m_keys);
            multiply(m_rows + t * m_keys, decays);
            multiply(m_rows + (m_tokens + t) * m_keys, decays);
        }
    }
    void multiply(float* x, const float* by) const {
        for (size_t i = 0; i < m_keys; i += V::lanes)
            V::store(x + i, V::mul(V::load(x + i), V::load(by + i)));
    }

    /// N vectors of columns from `column` on: all that is to be computed of them.
    template <size_t N>
    void compute_columns(size_t column) {
        float* updates = m_products;
        float* outputs = m_products + m_tokens * N * V::lanes;
        multiply_state<N>(column);
        for (size_t t = 0; t < m_tokens; ++t) {
            finish_update<N>(t, column, updates);
            finish_output<N>(t, column, updates, outputs);
        }
        if constexpr (!by_channel)
            for (size_t t = 0; t < m_tokens; ++t) {
                float* row = updates + t * N * V::lanes;
                const F decay = V::set(m_decays_after[t]);
                unrolled<N>([&](auto n) PAGEWHEEL_INLINE {
                    V::store(row + n * V::lanes, V::mul(V::load(row + n * V::lanes), decay));
                });
            }
        const StateBlock block(m_keys, m_width, column);
        for_vector_groups<4>(0, m_keys, [&](auto rows, size_t first) {
            update_state<rows, N>(block, first, updates);
        });
    }

    /// m_products: S^T times each of the rows.
    template <size_t N>
    void multiply_state(size_t column) {
        const StateBlock block(m_keys, m_width, column);
        for_rows<V>(2 * m_tokens, [&](auto rows, size_t first) {
            constexpr size_t R = rows;
            F sums[R][N];
            unrolled_grid<R, N>([&](auto r, auto n) PAGEWHEEL_INLINE { sums[r][n] = V::zero(); });
            const float* state = m_chunk.before + block.begin;
            const float* left = m_rows + first * m_keys;
            for (size_t i = 0; i < m_keys; ++i, state += block.stride, ++left)
                add_outer_product<V::add_product>(
                    sums, [&](auto r) PAGEWHEEL_INLINE { return V::set(left[r * m_keys]); },
                    [&](auto n) PAGEWHEEL_INLINE { return V::load(state + n * V::lanes); });
            unrolled_grid<R, N>([&](auto r, auto n) PAGEWHEEL_INLINE {
                V::store(m_products + ((first + r) * N + n) * V::lanes, sums[r][n]);
            });
        });
    }

    /// S^T k of a token becomes its u; those of the tokens before are there.
    template <size_t N>
    void finish_update(size_t t, size_t column, float* updates) const {
        float* own = updates + t * N * V::lanes;
        const F beta = V::set(m_chunk.betas[t]), decay = V::set(m_chunk.betas[t] * m_decays[t]);
        F sums[N];
        unrolled<N>([&](auto n) PAGEWHEEL_INLINE {
            const F value = V::mul(beta, V::load(m_chunk.values.row(t) + column + n * V::lanes));
            sums[n] = V::fnma(decay, V::load(own + n * V::lanes), value);
        });
        for (size_t j = 0; j < t; ++j) {
            const F factor = V::set(m_of_updates[t][j]);
            unrolled<N>([&](auto n) PAGEWHEEL_INLINE {
                sums[n] = V::fnma(factor, V::load(updates + (j * N + n) * V::lanes), sums[n]);
            });
        }
        unrolled<N>([&](auto n) PAGEWHEEL_INLINE { V::store(own + n * V::lanes, sums[n]); });
    }

    template <size_t N>
    void finish_output(size_t t, size_t column, const float* updates, const float* outputs) const {
        const float* own = outputs + t * N * V::lanes;
        const F decay = V::set(m_decays[t]);
        F sums[N];
        unrolled<N>([&](auto n)
                        PAGEWHEEL_INLINE { sums[n] = V::mul(decay, V::load(own + n * V::lanes)); });
        for (size_t j = 0; j <= t; ++j) {
            const F factor = V::set(m_of_outputs[t][j]);
            unrolled<N>([&](auto n) PAGEWHEEL_INLINE {
                sums[n] = V::fma(factor, V::load(updates + (j * N + n) * V::lanes), sums[n]);
            });
        }
        float* y = m_chunk.y + t * m_chunk.y_stride + column;
        unrolled<N>([&](auto n) PAGEWHEEL_INLINE { V::store(y + n * V::lanes, sums[n]); });
    }

    /// R rows of the state from `first` on.
    template <size_t R, size_t N>
    void update_state(const StateBlock& block, size_t first, const float* updates) const {
        const size_t at = block.begin + first * block.stride;
        const float* channels = m_channels + (m_tokens - 1) * m_keys + first;
        F decay = V::set(m_decays[m_tokens - 1]);
        F sums[R][N];
        unrolled<R>([&](auto r) PAGEWHEEL_INLINE {
            if constexpr (by_channel) decay = V::set(channels[r]);
            unrolled<N>([&](auto n) PAGEWHEEL_INLINE {
                const float* from = m_chunk.before + at + r * block.stride + n * V::lanes;
                sums[r][n] = V::mul(decay, V::load(from));
            });
        });
        const float* keys = (by_channel ? m_keys_after : m_rows) + first;
        for (size_t t = 0; t < m_tokens; ++t, keys += m_keys, updates += N * V::lanes)
            add_outer_product<V::add_product>(
                sums, [&](auto r) PAGEWHEEL_INLINE { return V::set(keys[r]); },
                [&](auto n) PAGEWHEEL_INLINE { return V::load(updates + n * V::lanes); });
        unrolled_grid<R, N>([&](auto r, auto n) PAGEWHEEL_INLINE {
            V::store(m_chunk.after + at + r * block.stride + n * V::lanes, sums[r][n]);
        });
    }

    void norm_and_gate(size_t t) const {
        float* y = m_chunk.y + t * m_chunk.y_stride;
        const float* gate = m_chunk.gates.row(t);
        F squares = V::zero();
        for (size_t i = 0; i < m_width; i += V::lanes) {
            const F x = V::load(y + i);
            squares = V::fma(x, x, squares);
        }
        const float mean = V::reduce_sum(squares) / float(m_width);
        const F factor = V::set(1 / __builtin_sqrtf(mean + m_chunk.norm_epsilon));
        for (size_t i = 0; i < m_width; i += V::lanes) {
            const F normed =
                V::mul(V::load(m_chunk.norm_weight + i), V::mul(V::load(y + i), factor));
            const F z = V::load(gate + i);
            const F factor_of_gate = m_chunk.gate_is_sigmoid ? V::set(1) : z;
            V::store(y + i, V::mul(normed, gated<V>(factor_of_gate, z)));
        }
    }

    const GatedDeltaChunk& m_chunk;
    const size_t m_tokens, m_keys, m_width;
    float m_decays[most];        // exp(G_t)
    float m_decays_after[most];  // exp(G_n - G_t)
    float m_of_updates[most][most], m_of_outputs[most][most];
    float m_rows[2 * most * most_size];
    static constexpr size_t channels_size = by_channel ? most * most_size : 1;
    float m_channels[channels_size], m_keys_after[channels_size];
    float m_products[2 * most * V::columns * V::lanes];
};

template <class V>
void gated_delta_chunk(const GatedDeltaChunk& chunk) {
    if (chunk.key_size % V::lanes != 0 || chunk.value_size % V::lanes != 0)
        scalar_gated_delta_chunk(chunk);
    else if (chunk.channel_decays.values != nullptr)
        GatedDelta<V, true>(chunk).run();
    else
        GatedDelta<V, false>(chunk).run();
}

template <class V>
void convolve(const ConvolutionPart& part) {
    const size_t kept = part.length - 1, channels = part.channels;
    for (size_t t = 0; t < part.tokens; ++t)
        for_vectors<V>(part.count, [&](size_t i, auto lanes) PAGEWHEEL_INLINE {
            const size_t c = part.first + i;
            auto sum = part.bias ? V::load(part.bias + c, lanes) : V::zero();
            for (size_t tap = 0; tap <= kept; ++tap) {
                // Row t - kept + tap of x; those before it are the state's.
                const size_t row = t + tap;
                const float* from = row >= kept   ? part.x + (row - kept) * channels
                                    : part.before ? part.before + row * channels
                                                  : nullptr;
                if (from == nullptr) continue;
                const auto weight = V::load(part.weights + tap * channels + c, lanes);
                sum = V::fma(weight, V::load(from + c, lanes), sum);
            }
            V::store(part.y + t * channels + c, part.silu ? gated<V>(sum, sum) : sum, lanes);
        });
}

template <class V>
StateKernels state_kernels() {
    return {gated_delta_chunk<V>, convolve<V>};
}

}  // namespace pagewheel::kernels::simd
