// The gated delta rule over the tokens of ragged batches, with a matrix as the state of each head.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/batch_tables.hpp"
#include "kernels/isa.hpp"

namespace pagewheel::kernels {

/// Gated DeltaNet (Yang et al., 2024, arXiv 2412.06464). For a value head, with its state S
/// [key_size, value_size], which is zero before a sequence's first token:
///
///     S = exp(g) S
///     S = S + k (beta (v - S^T k))^T
///     y = S^T q / sqrt(key_size)
///
/// Key head h / (value_heads / key_heads) is value head h's. In Kimi Delta Attention (Kimi Team,
/// 2025, arXiv 2510.26692) g is a vector [key_size], and row i of S becomes exp(g_i) times itself.
///
/// A state holds the matrices of all value heads in f32, each in blocks of 64 columns.
struct GatedDeltaRuleConfig {
    static constexpr size_t most_size = 512;  ///< of keys and values, which lie on the stack

    size_t key_heads = 0, value_heads = 0, key_size = 0, value_size = 0;
    /// Queries and keys are divided by sqrt(sum of squares + epsilon) first; 0: they are not.
    float query_epsilon = 0, key_epsilon = 0;

    /// Not empty: in place of g comes a, and g = decay_rates[head] softplus(a + decay_bias[head]),
    /// with rates below 0.
    std::vector<float> decay_rates, decay_bias;
    /// a, g and decay_bias have a number for each channel of keys, [value_heads, key_size].
    bool decay_by_channel = false;
    /// beta is beta_scale times the sigmoid of what comes in its place.
    bool beta_is_logit = false;
    float beta_scale = 1;

    /// [value_size] or empty. Not empty: y becomes norm_weight * y / sqrt(mean(y^2) +
    /// norm_epsilon) * silu(z), head by head; or sigmoid(z) in place of silu(z).
    std::vector<float> norm_weight;
    float norm_epsilon = 0;
    bool gate_is_sigmoid = false;

    /// Each token by itself: a row's bits do not depend on how a sequence is cut into calls.
    bool batch_invariant = false;

    size_t key_width() const { return key_heads * key_size; }
    size_t value_width() const { return value_heads * value_size; }
    size_t decay_width() const { return value_heads * (decay_by_channel ? key_size : 1); }
    size_t state_bytes() const { return value_heads * key_size * value_size * sizeof(float); }
    /// Throws InvalidArgument that names the member and what it should be.
    void check() const;
};

/// What a call reads, a row for each token of the batch.
struct GatedDeltaInputs {
    StridedRows queries, keys;  ///< [key_heads, key_size]
    StridedRows values;         ///< [value_heads, value_size]
    StridedRows decays;         ///< [decay_width()]: g or a
    StridedRows betas;          ///< [value_heads]: beta or its logit
    StridedRows gates;          ///< z [value_heads, value_size], with norm_weight
};

/// Computes y [tokens, value_heads, value_size], and writes each sequence's new state. State s lies
/// at states + s * state_bytes(). A row's result depends on no other sequence. `tables` were
/// checked (check_states()).
///
/// Tokens are computed some at a time by products of matrices: with K and Q the rows of a chunk's
/// keys and queries, G what g sums to from the chunk's first token on,
///
///     u_t = beta_t (v_t - exp(G_t) S^T k_t - sum over j < t of exp(G_t - G_j) (k_t . k_j) u_j)
///     y_t = exp(G_t) S^T q_t + sum over j <= t of exp(G_t - G_j) (q_t . k_j) u_j
///     S   = exp(G_n) S + sum over j of exp(G_n - G_j) k_j u_j^T
///
/// which is the paper's chunkwise form with its triangular system solved in place of inverted. All
/// is in f32. A chunk of one token is the recurrence. Where decays are vectors, keys and queries
/// are multiplied with them before the products.
void gated_delta_rule(const GatedDeltaRuleConfig& config, const BatchTables& tables,
                      const GatedDeltaInputs& inputs, uint8_t* states, float* y,
                      Isa isa = detected_isa());

}  // namespace pagewheel::kernels
