// Causal depthwise convolution over the tokens of ragged batches, with a state for each sequence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/batch_tables.hpp"
#include "kernels/isa.hpp"

namespace pagewheel::kernels {

/// y[t] = bias + the sum over i of weights[i] * x[t - (length - 1) + i], channel by channel.
/// Tokens before the first of a sequence are zero.
///
/// A state holds the last length - 1 tokens, f32 [length - 1, channels], the oldest first.
struct ShortConvolutionConfig {
    size_t channels = 0;
    size_t length = 0;           ///< taps, 2 or more
    std::vector<float> weights;  ///< [length, channels]; the last tap is the token's own
    std::vector<float> bias;     ///< [channels] or empty
    bool silu = false;           ///< y is then y * sigmoid(y)

    size_t state_bytes() const { return (length - 1) * channels * sizeof(float); }
    /// Throws InvalidArgument that names the member and what it should be.
    void check() const;
};

/// Computes y [tokens, channels] of x [tokens, channels], and writes each sequence's new state.
/// State s lies at states + s * state_bytes(). A row's result depends on no other sequence and not
/// on how a sequence is cut into calls. `tables` were checked (check_states()).
void short_convolution(const ShortConvolutionConfig& config, const BatchTables& tables,
                       const float* x, uint8_t* states, float* y, Isa isa = detected_isa());

}  // namespace pagewheel::kernels
