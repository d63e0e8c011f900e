// Mamba 2's selective state space model over ragged batches, with a state for each sequence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/batch_tables.hpp"
#include "kernels/isa.hpp"

namespace pagewheel::kernels {

/// The recurrence of Mamba 2 (Dao and Gu, arXiv 2405.21060, section 7). Head h belongs to group
/// g = h / (heads / groups) and has a state S [head_dim, state_size], zero before the first token:
///     step = dt[h], or clamp(softplus(dt[h] + dt_bias[h]), dt_min, dt_max) where there is a bias
///     S    = exp(a[h] step) S + step x[h] B[g]^T
///     y[h] = S C[g] + d[h] x[h], then times silu(gate[h]) where there is a gate
///
/// A state of a sequence is f32 [heads, state_size, head_dim]: transposed, so that what x and y
/// hold side by side is side by side.
struct SelectiveSsmConfig {
    size_t heads = 0, head_dim = 0, groups = 0, state_size = 0;
    std::vector<float> a;        ///< [heads], negative
    std::vector<float> d;        ///< [heads] or empty
    std::vector<float> dt_bias;  ///< [heads] or empty
    float dt_min = 0, dt_max = __builtin_inff();
    /// Many tokens are computed in chunks, which round otherwise than token by token. With this
    /// they are not: a row's result does not depend on how its sequence is cut into calls.
    bool batch_invariant = false;

    size_t state_bytes() const { return heads * state_size * head_dim * sizeof(float); }
    /// Throws InvalidArgument that names the member and what it should be.
    void check() const;
};

/// Rows of all new tokens, one after the other.
struct SelectiveSsmInput {
    StridedRows x;     ///< [heads, head_dim]
    StridedRows b, c;  ///< [groups, state_size]
    StridedRows dt;    ///< [heads]
    StridedRows gate;  ///< [heads, head_dim] or null
};

/// Computes y [tokens, heads, head_dim] and writes each sequence's new state. State s lies at
/// states + s * state_bytes(). A row's result depends on no other sequence. `tables` were checked
/// (check_states()).
void selective_ssm(const SelectiveSsmConfig& config, const BatchTables& tables,
                   const SelectiveSsmInput& input, uint8_t* states, float* y,
                   Isa isa = detected_isa());

/// Consecutive heads of one group and one sequence, whose new tokens are the rows.
struct SsmHeads {
    size_t count = 0, head_dim = 0, state_size = 0, tokens = 0;
    StridedRows x, b, c, gate;
    const float* steps = nullptr;   // [count, tokens]
    const float* decays = nullptr;  // [count, tokens], exp(a step)
    const float* d = nullptr;       // [count] or null
    float* y = nullptr;             // rows lie y_stride floats apart
    size_t y_stride = 0;
    const float* before = nullptr;  // the states [count, state_size, head_dim], null for zeros
    float* after = nullptr;         // may be `before`
    float* scratch = nullptr;       // ssm_scratch() floats, on a cache line
};

/// Tokens of a chunk, and what one takes of memory.
constexpr size_t ssm_chunk = 64;
constexpr size_t ssm_scratch(size_t head_dim, size_t state_size) {
    return ssm_chunk * (3 * state_size + 2 * head_dim + 2 * ssm_chunk + 2);
}

struct SsmKernels {
    /// Token by token.
    void (*run_tokens)(const SsmHeads& heads) = nullptr;
    /// In chunks of tokens: the state space dual form, by products of matrices. Null: there is
    /// none.
    void (*run_chunks)(const SsmHeads& heads) = nullptr;
};

/// The definition.
SsmKernels ssm_reference();

}  // namespace pagewheel::kernels
