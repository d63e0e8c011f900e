#include "kernels/selective_ssm.hpp"

#include <algorithm>
#include <cmath>

#include "base/check.hpp"
#include "kernels/kernels.hpp"
#include "kernels/line_buffer.hpp"
#include "kernels/team.hpp"

namespace pagewheel::kernels {
namespace {

/// From so many new tokens of a sequence on, chunks are faster than single tokens.
constexpr size_t least_chunked_tokens = 4;
/// Heads that share what a chunk computes of their group.
constexpr size_t most_heads = 8;

void run_tokens_by_definition(const SsmHeads& heads) {
    const size_t size = heads.state_size * heads.head_dim;
    for (size_t h = 0; h < heads.count; ++h) {
        const size_t first = h * heads.head_dim;
        float* state = heads.after + h * size;
        if (!heads.before)
            std::fill_n(state, size, 0.0f);
        else if (heads.before != heads.after)
            std::copy_n(heads.before + h * size, size, state);
        for (size_t t = 0; t < heads.tokens; ++t) {
            const float* x = heads.x.values + t * heads.x.stride + first;
            const float* b = heads.b.values + t * heads.b.stride;
            const float* c = heads.c.values + t * heads.c.stride;
            float* y = heads.y + t * heads.y_stride + first;
            const float step = heads.steps[h * heads.tokens + t];
            const float decay = heads.decays[h * heads.tokens + t];
            for (size_t p = 0; p < heads.head_dim; ++p) {
                float sum = 0;
                for (size_t n = 0; n < heads.state_size; ++n) {
                    float& s = state[n * heads.head_dim + p];
                    s = decay * s + step * x[p] * b[n];
                    sum += s * c[n];
                }
                if (heads.d) sum += heads.d[h] * x[p];
                if (heads.gate.values) {
                    const float g = heads.gate.values[t * heads.gate.stride + first + p];
                    sum *= g / (1 + std::exp(-g));
                }
                y[p] = sum;
            }
        }
    }
}

/// The call's work in items: of a sequence, some heads of one group.
class Work {
public:
    Work(const SelectiveSsmConfig& config, const BatchTables& tables,
         const SelectiveSsmInput& input, uint8_t* states, float* y, const SsmKernels& kernels)
        : m_config(config),
          m_tables(tables),
          m_input(input),
          m_states(states),
          m_y(y),
          m_kernels(kernels) {
        const size_t of_group = config.heads / config.groups;
        const size_t each = num_sequences() * config.heads / (4 * num_threads());
        m_heads = std::clamp<size_t>(each, 1, std::min(most_heads, of_group));
        m_parts = (of_group + m_heads - 1) / m_heads;
    }

    size_t num_items() const { return num_sequences() * config().groups * m_parts; }

    void run(size_t item) const {
        const size_t of_group = config().heads / config().groups;
        const size_t part = item % m_parts, group = item / m_parts % config().groups;
        const size_t first = group * of_group + part * m_heads;
        const auto compute = [&](size_t row, size_t tokens, int32_t source, int32_t target) {
            SsmHeads heads;
            heads.count = std::min(m_heads, of_group - part * m_heads);
            heads.head_dim = config().head_dim;
            heads.state_size = config().state_size;
            heads.tokens = tokens;
            const auto from = [&](const StridedRows& columns, size_t column) {
                if (!columns.values) return columns;
                return StridedRows{columns.values + row * columns.stride + column, columns.stride};
            };
            heads.x = from(m_input.x, first * heads.head_dim);
            heads.b = from(m_input.b, group * heads.state_size);
            heads.c = from(m_input.c, group * heads.state_size);
            heads.gate = from(m_input.gate, first * heads.head_dim);
            heads.d = config().d.empty() ? nullptr : config().d.data() + first;
            heads.y_stride = config().heads * heads.head_dim;
            heads.y = m_y + row * heads.y_stride + first * heads.head_dim;
            heads.before = state(source, first);
            heads.after = state(target, first);
            prepare(heads, from(m_input.dt, first), first);
            const bool chunked = m_kernels.run_chunks && !config().batch_invariant &&
                                 heads.tokens >= least_chunked_tokens;
            (chunked ? m_kernels.run_chunks : m_kernels.run_tokens)(heads);
        };
        m_tables.for_states(item / m_parts / config().groups, compute);
    }

private:
    const SelectiveSsmConfig& config() const { return m_config; }
    size_t num_sequences() const { return m_tables.state_targets.size; }

    float* state(int32_t slot, size_t head) const {
        if (slot < 0) return nullptr;
        float* states = reinterpret_cast<float*>(m_states + size_t(slot) * config().state_bytes());
        return states + head * config().state_size * config().head_dim;
    }

    void prepare(SsmHeads& heads, const StridedRows& dt, size_t first) const {
        static thread_local LineBuffer<float> memory;
        const size_t scratch = ssm_scratch(heads.head_dim, heads.state_size);
        heads.scratch = memory.resize(scratch + 2 * heads.count * heads.tokens);
        float* steps = heads.scratch + scratch;
        float* decays = steps + heads.count * heads.tokens;
        for (size_t h = 0; h < heads.count; ++h)
            for (size_t t = 0; t < heads.tokens; ++t) {
                float step = dt.values[t * dt.stride + h];
                if (!config().dt_bias.empty())
                    step = std::clamp(softplus(step + config().dt_bias[first + h]), config().dt_min,
                                      config().dt_max);
                steps[h * heads.tokens + t] = step;
                decays[h * heads.tokens + t] = std::exp(config().a[first + h] * step);
            }
        heads.steps = steps;
        heads.decays = decays;
    }

    const SelectiveSsmConfig& m_config;
    const BatchTables& m_tables;
    const SelectiveSsmInput& m_input;
    uint8_t* m_states;
    float* m_y;
    const SsmKernels& m_kernels;
    size_t m_heads = 1, m_parts = 1;
};

}  // namespace

void SelectiveSsmConfig::check() const {
    check_argument(heads > 0 && head_dim > 0 && state_size > 0 && groups > 0 && heads % groups == 0,
                   "a selective SSM has ", heads, " heads of ", head_dim, " in ", groups,
                   " groups and a state of ", state_size,
                   ", expected at least 1 of each, and heads in whole groups");
    check_argument(a.size() == heads, "a selective SSM has ", a.size(), " decay rates, expected ",
                   heads);
    check_argument(d.empty() || d.size() == heads, "a selective SSM has ", d.size(),
                   " skip factors, expected ", heads, " or none");
    check_argument(dt_bias.empty() || dt_bias.size() == heads, "a selective SSM has ",
                   dt_bias.size(), " biases of steps, expected ", heads, " or none");
    check_argument(dt_min <= dt_max, "the steps of a selective SSM are at least ", dt_min,
                   " and at most ", dt_max);
}

SsmKernels ssm_reference() {
    return {run_tokens_by_definition, nullptr};
}

void selective_ssm(const SelectiveSsmConfig& config, const BatchTables& tables,
                   const SelectiveSsmInput& input, uint8_t* states, float* y, Isa isa) {
    const Work work(config, tables, input, states, y, isa.kernels().ssm);
    run_phases(StreamPhase{work.num_items(), [&](size_t item) { work.run(item); }});
}

}  // namespace pagewheel::kernels
