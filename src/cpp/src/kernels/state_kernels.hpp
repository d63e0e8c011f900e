// What the layers that keep states, which divide the work, and their kernels say to each other.
// Internal to the kernels.
#pragma once

#include <cstddef>

#include "kernels/gated_delta_rule.hpp"
#include "kernels/short_convolution.hpp"

namespace pagewheel::kernels {

/// Where a column of a head's state lies: rows [key_size] from `begin` on, `stride` apart. Blocks
/// of columns are one after the other, because columns of a whole matrix, whose rows are a power of
/// two apart, would share a few lines of the first-level cache.
struct StateBlock {
    static constexpr size_t columns = 64;

    [[gnu::always_inline]] StateBlock(size_t key_size, size_t value_size, size_t column) {
        const size_t first = column - column % columns, left = value_size - first;
        begin = first * key_size + column % columns;
        stride = left < columns ? left : columns;
    }
    size_t begin, stride;
};

/// Some tokens of one value head of one sequence, at most max_tokens.
struct GatedDeltaChunk {
    static constexpr size_t max_tokens = 8;

    size_t key_size = 0, value_size = 0, tokens = 0;
    float query_epsilon = 0, key_epsilon = 0;  ///< GatedDeltaRuleConfig
    StridedRows queries, keys, values, gates;  ///< of this head and its key head
    float decays[max_tokens];                  ///< exp(g), or:
    StridedRows channel_decays;                ///< a vector g for each token, or a with decay_bias
    float decay_rate = 0;
    const float* decay_bias = nullptr;
    float betas[max_tokens];
    const float* norm_weight = nullptr;  ///< null: no norm
    float norm_epsilon = 0;
    bool gate_is_sigmoid = false;
    const float* before = nullptr;  ///< the state; may be `after`
    float* after = nullptr;
    float* y = nullptr;
    size_t y_stride = 0;
};

/// Some channels [first, first + count) of one sequence's tokens.
struct ConvolutionPart {
    size_t channels, length;
    const float* weights;  ///< [length, channels]
    const float* bias;     ///< [channels] or null
    bool silu;
    size_t first, count;
    const float* before;  ///< the state, or null for zeros
    const float* x;       ///< [tokens, channels]
    size_t tokens;
    float* y;  ///< [tokens, channels]
};

struct StateKernels {
    void (*gated_delta_chunk)(const GatedDeltaChunk& chunk);
    void (*convolve)(const ConvolutionPart& part);
};

/// ln(1 + exp(x)); beyond 20 that is x in f32.
float softplus(float x);

/// The definitions, which take what does not fill the vectors of others.
void scalar_gated_delta_chunk(const GatedDeltaChunk& chunk);
void scalar_convolve(const ConvolutionPart& part);

}  // namespace pagewheel::kernels
