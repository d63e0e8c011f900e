#include "kernels/gated_delta_rule.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.hpp"
#include "kernels/kernels.hpp"
#include "kernels/team.hpp"

namespace pagewheel::kernels {
namespace {

/// A value head of one sequence in a call.
class Head {
public:
    Head(const GatedDeltaRuleConfig& config, const GatedDeltaInputs& inputs, size_t head,
         size_t first_row)
        : m_config(config), m_inputs(inputs), m_head(head), m_first_row(first_row) {}

    /// `before`: the state, or null for zeros.
    void compute(const float* before, float* after, float* y, size_t tokens,
                 void (*compute_chunk)(const GatedDeltaChunk&)) const {
        const size_t most = m_config.batch_invariant ? 1 : GatedDeltaChunk::max_tokens;
        if (before == nullptr) {
            std::memset(after, 0, m_config.key_size * m_config.value_size * sizeof(float));
            before = after;
        }
        for (size_t done = 0; done < tokens; done += most, before = after) {
            GatedDeltaChunk chunk = of_tokens(m_first_row + done, std::min(most, tokens - done));
            chunk.before = before;
            chunk.after = after;
            chunk.y =
                y + (m_first_row + done) * m_config.value_width() + m_head * m_config.value_size;
            compute_chunk(chunk);
        }
    }

private:
    GatedDeltaChunk of_tokens(size_t row, size_t count) const {
        const size_t keys_at =
            m_head / (m_config.value_heads / m_config.key_heads) * m_config.key_size;
        const size_t values_at = m_head * m_config.value_size;
        const auto part = [&](const StridedRows& rows, size_t at) {
            return StridedRows{rows.values + row * rows.stride + at, rows.stride};
        };
        GatedDeltaChunk chunk;
        chunk.key_size = m_config.key_size;
        chunk.value_size = m_config.value_size;
        chunk.tokens = count;
        chunk.query_epsilon = m_config.query_epsilon;
        chunk.key_epsilon = m_config.key_epsilon;
        chunk.queries = part(m_inputs.queries, keys_at);
        chunk.keys = part(m_inputs.keys, keys_at);
        chunk.values = part(m_inputs.values, values_at);
        chunk.y_stride = m_config.value_width();
        if (m_config.decay_by_channel) {
            const size_t decays_at = m_head * m_config.key_size;
            chunk.channel_decays = part(m_inputs.decays, decays_at);
            if (!m_config.decay_rates.empty()) {
                chunk.decay_rate = m_config.decay_rates[m_head];
                chunk.decay_bias = m_config.decay_bias.data() + decays_at;
            }
        }
        for (size_t t = 0; t < count; ++t) {
            if (!m_config.decay_by_channel) {
                float decay = m_inputs.decays.row(row + t)[m_head];
                if (!m_config.decay_rates.empty())
                    decay = m_config.decay_rates[m_head] *
                            softplus(decay + m_config.decay_bias[m_head]);
                chunk.decays[t] = std::exp(decay);
            }
            const float beta = m_inputs.betas.row(row + t)[m_head];
            chunk.betas[t] =
                m_config.beta_is_logit ? m_config.beta_scale / (1 + std::exp(-beta)) : beta;
        }
        if (!m_config.norm_weight.empty()) {
            chunk.gates = part(m_inputs.gates, values_at);
            chunk.norm_weight = m_config.norm_weight.data();
            chunk.norm_epsilon = m_config.norm_epsilon;
            chunk.gate_is_sigmoid = m_config.gate_is_sigmoid;
        }
        return chunk;
    }

    const GatedDeltaRuleConfig& m_config;
    const GatedDeltaInputs& m_inputs;
    const size_t m_head, m_first_row;
};

}  // namespace

void GatedDeltaRuleConfig::check() const {
    check_argument(key_heads > 0 && value_heads > 0 && value_heads % key_heads == 0,
                   "a gated delta rule has ", key_heads, " key heads and ", value_heads,
                   " value heads, expected a multiple of the former");
    for (const size_t size : {key_size, value_size})
        check_argument(size > 0 && size <= most_size, "a gated delta rule has heads of ", size,
                       ", expected 1 to ", most_size);
    check_argument(decay_rates.empty()
                       ? decay_bias.empty()
                       : decay_rates.size() == value_heads && decay_bias.size() == decay_width(),
                   "a gated delta rule has ", decay_rates.size(), " decay rates and ",
                   decay_bias.size(), " biases, expected ", value_heads, " and ", decay_width(),
                   " or none");
    check_argument(norm_weight.empty() || norm_weight.size() == value_size,
                   "a gated delta rule's norm has ", norm_weight.size(), " weights, expected ",
                   value_size, " or none");
}

void gated_delta_rule(const GatedDeltaRuleConfig& config, const BatchTables& tables,
                      const GatedDeltaInputs& inputs, uint8_t* states, float* y, Isa isa) {
    const size_t matrix = config.key_size * config.value_size;
    const auto state = [&](int32_t slot, size_t head) {
        float* begin = reinterpret_cast<float*>(states + size_t(slot) * config.state_bytes());
        return slot < 0 ? nullptr : begin + head * matrix;
    };
    auto* const compute_chunk = isa.kernels().state.gated_delta_chunk;
    const auto compute = [&](size_t item) {
        const size_t sequence = item / config.value_heads, head = item % config.value_heads;
        tables.for_states(sequence, [&](size_t row, size_t tokens, int32_t source, int32_t target) {
            Head(config, inputs, head, row)
                .compute(state(source, head), state(target, head), y, tokens, compute_chunk);
        });
    };
    run_phases(Phase{tables.state_targets.size * config.value_heads, compute});
}

}  // namespace pagewheel::kernels
