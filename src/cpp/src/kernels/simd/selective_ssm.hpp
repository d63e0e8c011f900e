// Mamba 2's recurrence (kernels/selective_ssm.hpp), for any V (simd/vectors.hpp).
#pragma once

#include <cstring>

#include "kernels/selective_ssm.hpp"
#include "kernels/simd/math.hpp"

namespace pagewheel::kernels::simd {

/// Calls body(std::integral_constant<size_t, N>(), i, lanes) for N vectors that begin at i, which
/// together cover [0, n): `Most` at a time, then each.
template <class V, size_t Most, class Body>
[[gnu::always_inline]] inline void for_column_groups(size_t n, const Body& body) {
    size_t i = 0;
    for (; i + Most * V::lanes <= n; i += Most * V::lanes)
        body(std::integral_constant<size_t, Most>(), i, AllLanes());
    for (; i + V::lanes <= n; i += V::lanes)
        body(std::integral_constant<size_t, 1>(), i, AllLanes());
    if (i < n) body(std::integral_constant<size_t, 1>(), i, V::mask(n - i));
}

/// y = (y + d x) * silu(gate), token by token of head h.
template <class V>
void finish_ssm_head(const SsmHeads& heads, size_t h) {
    if (!heads.d && !heads.gate.values) return;
    const size_t first = h * heads.head_dim;
    const auto d = V::set(heads.d ? heads.d[h] : 0.0f);
    for (size_t t = 0; t < heads.tokens; ++t) {
        const float* x = heads.x.values + t * heads.x.stride + first;
        const float* gate = heads.gate.values;
        if (gate) gate += t * heads.gate.stride + first;
        float* y = heads.y + t * heads.y_stride + first;
        for_vectors<V>(heads.head_dim, [&](size_t p, auto lanes) PAGEWHEEL_INLINE {
            auto sum = V::fma(d, V::load(x + p, lanes), V::load(y + p, lanes));
            if (gate) {
                const auto g = V::load(gate + p, lanes);
                sum = V::mul(sum, gated<V>(g, g));
            }
            V::store(y + p, sum, lanes);
        });
    }
}

template <class V>
void run_ssm_tokens(const SsmHeads& heads) {
    const size_t size = heads.state_size * heads.head_dim;
    for (size_t h = 0; h < heads.count; ++h) {
        const size_t first = h * heads.head_dim;
        float* after = heads.after + h * size;
        const float* before = heads.before ? heads.before + h * size : nullptr;
        if (!before) std::memset(after, 0, size * sizeof(float));
        for (size_t t = 0; t < heads.tokens; ++t) {
            const float* from = t == 0 && before ? before : after;
            const float* x = heads.x.values + t * heads.x.stride + first;
            const float* b = heads.b.values + t * heads.b.stride;
            const float* c = heads.c.values + t * heads.c.stride;
            float* y = heads.y + t * heads.y_stride + first;
            const auto step = V::set(heads.steps[h * heads.tokens + t]);
            const auto decay = V::set(heads.decays[h * heads.tokens + t]);
            for_column_groups<V, 4>(
                heads.head_dim, [&](auto N, size_t p, auto lanes) PAGEWHEEL_INLINE {
                    typename V::F added[N], sums[N];
                    unrolled<N>([&](auto i) PAGEWHEEL_INLINE {
                        added[i] = V::mul(step, V::load(x + p + i * V::lanes, lanes));
                        sums[i] = V::zero();
                    });
                    for (size_t n = 0; n < heads.state_size; ++n) {
                        const auto in = V::set(b[n]), out = V::set(c[n]);
                        unrolled<N>([&](auto i) PAGEWHEEL_INLINE {
                            const size_t at = n * heads.head_dim + p + i * V::lanes;
                            const auto s =
                                V::fma(added[i], in, V::mul(decay, V::load(from + at, lanes)));
                            V::store(after + at, s, lanes);
                            sums[i] = V::fma(s, out, sums[i]);
                        });
                    }
                    unrolled<N>([&](auto i) PAGEWHEEL_INLINE {
                        V::store(y + p + i * V::lanes, sums[i], lanes);
                    });
                });
        }
        finish_ssm_head<V>(heads, h);
    }
}

/// left[r * row + k * step] for row r of a product of matrices and k of the sum.
struct LeftMatrix {
    const float* values;
    size_t row, step;
};

/// sums[r][n] += the sum over k < count of left's (row + r, k) times vector n of right's row k.
template <class V, size_t R, size_t N, class Lanes>
[[gnu::always_inline]] inline void add_products(typename V::F (&sums)[R][N], const LeftMatrix& left,
                                                size_t row, size_t count, const float* right,
                                                size_t right_stride, Lanes lanes) {
    const float* values = left.values + row * left.row;
    for (size_t k = 0; k < count; ++k)
        add_outer_product<V::add_product>(
            sums,
            [&](auto r) PAGEWHEEL_INLINE { return V::set(values[r * left.row + k * left.step]); },
            [&](auto n) PAGEWHEEL_INLINE {
                return V::load(right + k * right_stride + n * V::lanes, lanes);
            });
}

/// Some heads by chunks: within one, y = (L * C B^T) (step x) and what C reads of the state before,
/// where L [t, s] is the product of the decays after s up to t (the paper's section 6).
template <class V>
class SsmChunks {
public:
    explicit SsmChunks(const SsmHeads& heads)
        : m_heads(heads), m_dim(heads.head_dim), m_size(heads.state_size) {
        float* at = heads.scratch;
        const auto take = [&](size_t count) PAGEWHEEL_INLINE { return (at += count) - count; };
        m_c = take(chunk * m_size), m_b = take(chunk * m_size);
        m_b_columns = take(m_size * chunk);
        m_products = take(chunk * chunk), m_mixed = take(chunk * chunk);
        m_x = take(chunk * m_dim), m_weighted = take(chunk * m_dim);
        m_weights = take(chunk), m_prefixes = take(chunk);
    }

    void run() {
        for (size_t begin = 0; begin < m_heads.tokens; begin += chunk) {
            m_begin = begin;
            m_tokens = m_heads.tokens - begin < chunk ? m_heads.tokens - begin : chunk;
            multiply_group();
            for (size_t h = 0; h < m_heads.count; ++h) run_head(h);
        }
        for (size_t h = 0; h < m_heads.count; ++h) finish_ssm_head<V>(m_heads, h);
    }

private:
    static constexpr size_t chunk = ssm_chunk;

    /// B and C of the chunk side by side, and C B^T.
    void multiply_group() {
        for (size_t t = 0; t < m_tokens; ++t) {
            const size_t row = m_begin + t;
            const size_t bytes = m_size * sizeof(float);
            std::memcpy(m_c + t * m_size, m_heads.c.values + row * m_heads.c.stride, bytes);
            std::memcpy(m_b + t * m_size, m_heads.b.values + row * m_heads.b.stride, bytes);
        }
        for (size_t n = 0; n < m_size; ++n)
            for (size_t s = 0; s < chunk; ++s)
                m_b_columns[n * chunk + s] = s < m_tokens ? m_b[s * m_size + n] : 0.0f;
        for_tiles(
            m_tokens, chunk, [&](auto R, size_t t, auto N, size_t s, auto lanes) PAGEWHEEL_INLINE {
                if (s >= t + R) return;  // later tokens than the rows
                typename V::F sums[R][N] = {};
                add_products<V>(sums, {m_c, m_size, 1}, t, m_size, m_b_columns + s, chunk, lanes);
                store_tile(sums, m_products + t * chunk + s, chunk, lanes);
            });
    }

    void run_head(size_t h) {
        const float* before = m_heads.after + h * m_size * m_dim;
        if (m_begin == 0) before = m_heads.before ? m_heads.before + h * m_size * m_dim : nullptr;
        const float left = weigh(h);
        for (size_t t = 0; t < m_tokens; ++t) copy_x(h, t);
        read_state(h, before);
        write_state(h, before, left);
    }

    /// What each token still counts for at each later one, and the state before at each. Returns
    /// the latter at the chunk's end, where m_weights are what tokens count for.
    float weigh(size_t h) {
        const float* steps = m_heads.steps + h * m_heads.tokens + m_begin;
        const float* decays = m_heads.decays + h * m_heads.tokens + m_begin;
        const auto least = V::set(1e-30f);  // below that it counts for nothing, and denormals cost
        float prefix = 1;
        std::memset(m_weights, 0, chunk * sizeof(float));
        for (size_t t = 0; t < m_tokens; ++t) {
            const auto decay = V::set(decays[t]);
            prefix *= decays[t];
            if (prefix < 1e-30f) prefix = 0;
            m_prefixes[t] = prefix;
            for (size_t s = 0; s <= t; s += V::lanes) {
                const auto weight = V::mul(V::load(m_weights + s), decay);
                V::store(m_weights + s, V::zero_unless(V::greater_equal(weight, least), weight));
            }
            m_weights[t] = steps[t];
            for (size_t s = 0; s <= t; s += V::lanes)
                V::store(m_mixed + t * chunk + s,
                         V::mul(V::load(m_weights + s), V::load(m_products + t * chunk + s)));
        }
        return prefix;
    }

    void copy_x(size_t h, size_t t) {
        const float* x = m_heads.x.values + (m_begin + t) * m_heads.x.stride + h * m_dim;
        const auto weight = V::set(m_weights[t]);
        for_vectors<V>(m_dim, [&](size_t p, auto lanes) PAGEWHEEL_INLINE {
            const auto values = V::load(x + p, lanes);
            V::store(m_x + t * m_dim + p, values, lanes);
            V::store(m_weighted + t * m_dim + p, V::mul(weight, values), lanes);
        });
    }

    void read_state(size_t h, const float* before) {
        float* y = m_heads.y + m_begin * m_heads.y_stride + h * m_dim;
        for_tiles(
            m_tokens, m_dim, [&](auto R, size_t t, auto N, size_t p, auto lanes) PAGEWHEEL_INLINE {
                typename V::F sums[R][N] = {};
                if (before) {
                    add_products<V>(sums, {m_c, m_size, 1}, t, m_size, before + p, m_dim, lanes);
                    unrolled<R>([&](auto r) PAGEWHEEL_INLINE {
                        const auto prefix = V::set(m_prefixes[t + r]);
                        unrolled<N>([&](auto n) PAGEWHEEL_INLINE {
                            sums[r][n] = V::mul(sums[r][n], prefix);
                        });
                    });
                }
                // Tokens after a row have weight 0 up to the vector's end, and none is read beyond.
                add_products<V>(sums, {m_mixed, chunk, 1}, t, t + 1, m_x + p, m_dim, lanes);
                unrolled<R>([&](auto r) PAGEWHEEL_INLINE {
                    if constexpr (r > 0) add_later<r>(sums, t, p, lanes);
                });
                store_tile(sums, y + t * m_heads.y_stride + p, m_heads.y_stride, lanes);
            });
    }

    /// Token t + K counts for the rows from itself on.
    template <size_t K, size_t R, size_t N, class Lanes>
    [[gnu::always_inline]] void add_later(typename V::F (&sums)[R][N], size_t t, size_t p,
                                          Lanes lanes) {
        unrolled<N>([&](auto n) PAGEWHEEL_INLINE {
            const auto x = V::load(m_x + (t + K) * m_dim + p + n * V::lanes, lanes);
            unrolled<R>([&](auto r) PAGEWHEEL_INLINE {
                if constexpr (r >= K)
                    V::add_product(sums[r][n], x, V::set(m_mixed[(t + r) * chunk + t + K]));
            });
        });
    }

    void write_state(size_t h, const float* before, float left) {
        float* after = m_heads.after + h * m_size * m_dim;
        const auto kept = V::set(left);
        for_tiles(m_size, m_dim,
                  [&](auto R, size_t row, auto N, size_t p, auto lanes) PAGEWHEEL_INLINE {
                      typename V::F sums[R][N] = {};
                      if (before)
                          unrolled_grid<R, N>([&](auto r, auto n) PAGEWHEEL_INLINE {
                              const float* from = before + (row + r) * m_dim + p + n * V::lanes;
                              sums[r][n] = V::mul(kept, V::load(from, lanes));
                          });
                      add_products<V>(sums, {m_b, 1, m_size}, row, m_tokens, m_weighted + p, m_dim,
                                      lanes);
                      store_tile(sums, after + row * m_dim + p, m_dim, lanes);
                  });
    }

    /// Calls body(rows, first row, vectors, first column, lanes) for tiles that cover all.
    template <class Body>
    [[gnu::always_inline]] static void for_tiles(size_t rows, size_t columns, const Body& body) {
        for_column_groups<V, V::columns>(
            columns, [&](auto N, size_t column, auto lanes) PAGEWHEEL_INLINE {
                for_rows<V>(rows, [&](auto R, size_t row)
                                      PAGEWHEEL_INLINE { body(R, row, N, column, lanes); });
            });
    }

    template <size_t R, size_t N, class Lanes>
    [[gnu::always_inline]] static void store_tile(const typename V::F (&sums)[R][N], float* out,
                                                  size_t stride, Lanes lanes) {
        unrolled_grid<R, N>([&](auto r, auto n) PAGEWHEEL_INLINE {
            V::store(out + r * stride + n * V::lanes, sums[r][n], lanes);
        });
    }

    const SsmHeads& m_heads;
    const size_t m_dim, m_size;
    size_t m_begin = 0, m_tokens = 0;
    // Of a chunk's group: rows of C, rows of B, columns of B, C B^T.
    float *m_c, *m_b, *m_b_columns, *m_products;
    // Of a head: C B^T weighted, rows of x, those weighted for the state, the weights, the
    // prefixes.
    float *m_mixed, *m_x, *m_weighted, *m_weights, *m_prefixes;
};

template <class V>
SsmKernels ssm_kernels() {
    return {run_ssm_tokens<V>, [](const SsmHeads& heads) { SsmChunks<V>(heads).run(); }};
}

}  // namespace pagewheel::kernels::simd
