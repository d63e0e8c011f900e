// The layers that keep states as they are defined.
#include <cmath>

#include "kernels/state_kernels.hpp"

namespace pagewheel::kernels {
namespace {

float silu(float x) {
    return x / (1 + std::exp(-x));
}

/// 1 / sqrt(sum of squares + epsilon), or 1 where there is no norm.
float inverse_length(const float* x, size_t size, float epsilon) {
    if (epsilon == 0) return 1;
    float sum = epsilon;
    for (size_t i = 0; i < size; ++i) sum += x[i] * x[i];
    return 1 / std::sqrt(sum);
}

void norm_and_gate(const GatedDeltaChunk& chunk, const float* gate, float* y) {
    float squares = 0;
    for (size_t i = 0; i < chunk.value_size; ++i) squares += y[i] * y[i];
    const float factor = 1 / std::sqrt(squares / float(chunk.value_size) + chunk.norm_epsilon);
    for (size_t i = 0; i < chunk.value_size; ++i)
        y[i] = chunk.norm_weight[i] * y[i] * factor *
               (chunk.gate_is_sigmoid ? 1 / (1 + std::exp(-gate[i])) : silu(gate[i]));
}

/// exp(g) of each channel of keys.
void find_decays(const GatedDeltaChunk& chunk, size_t t, float* decays) {
    for (size_t i = 0; i < chunk.key_size; ++i) {
        if (chunk.channel_decays.values == nullptr) {
            decays[i] = chunk.decays[t];
            continue;
        }
        const float x = chunk.channel_decays.row(t)[i];
        decays[i] =
            std::exp(chunk.decay_bias ? chunk.decay_rate * softplus(x + chunk.decay_bias[i]) : x);
    }
}

}  // namespace

float softplus(float x) {
    return x > 20 ? x : std::log1p(std::exp(x));
}

void scalar_gated_delta_chunk(const GatedDeltaChunk& chunk) {
    const float* before = chunk.before;
    float decays[GatedDeltaRuleConfig::most_size];
    for (size_t t = 0; t < chunk.tokens; ++t, before = chunk.after) {
        find_decays(chunk, t, decays);
        const float *q = chunk.queries.row(t), *k = chunk.keys.row(t), *v = chunk.values.row(t);
        float* y = chunk.y + t * chunk.y_stride;
        const float k_scale = inverse_length(k, chunk.key_size, chunk.key_epsilon);
        const float q_scale = inverse_length(q, chunk.key_size, chunk.query_epsilon) /
                              std::sqrt(float(chunk.key_size));
        for (size_t column = 0; column < chunk.value_size; ++column) {
            const StateBlock block(chunk.key_size, chunk.value_size, column);
            float known = 0;
            for (size_t i = 0; i < chunk.key_size; ++i) {
                const size_t at = block.begin + i * block.stride;
                chunk.after[at] = decays[i] * before[at];
                known += chunk.after[at] * k[i] * k_scale;
            }
            const float update = chunk.betas[t] * (v[column] - known);
            float sum = 0;
            for (size_t i = 0; i < chunk.key_size; ++i) {
                float& state = chunk.after[block.begin + i * block.stride];
                state += k[i] * k_scale * update;
                sum += state * q[i] * q_scale;
            }
            y[column] = sum;
        }
        if (chunk.norm_weight != nullptr) norm_and_gate(chunk, chunk.gates.row(t), y);
    }
}

void scalar_convolve(const ConvolutionPart& part) {
    const size_t kept = part.length - 1, channels = part.channels;
    for (size_t t = 0; t < part.tokens; ++t)
        for (size_t c = part.first; c < part.first + part.count; ++c) {
            float sum = part.bias ? part.bias[c] : 0;
            for (size_t tap = 0; tap <= kept; ++tap) {
                // Row t - kept + tap of x; those before it are the state's.
                const size_t row = t + tap;
                const float x = row >= kept   ? part.x[(row - kept) * channels + c]
                                : part.before ? part.before[row * channels + c]
                                              : 0;
                sum += part.weights[tap * channels + c] * x;
            }
            part.y[t * channels + c] = part.silu ? silu(sum) : sum;
        }
}

}  // namespace pagewheel::kernels
