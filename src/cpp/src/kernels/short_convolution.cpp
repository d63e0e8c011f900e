#include "kernels/short_convolution.hpp"

#include <algorithm>
#include <cstring>

#include "base/check.hpp"
#include "kernels/team.hpp"

namespace pagewheel::kernels {
namespace {

/// What a thread takes at a time. Its rows of three or four taps fit the first-level cache.
constexpr size_t block_channels = 256;

/// Some channels of one sequence.
class Part {
public:
    Part(const ShortConvolutionConfig& config, size_t first, size_t count)
        : m_config(config), m_first(first), m_count(count) {}

    /// `before`: the state, or null for zeros.
    void compute(const float* before, const float* x, size_t tokens, float* y) const {
        const size_t length = m_config.length, channels = m_config.channels;
        for (size_t t = 0; t < tokens; ++t) {
            float* out = y + t * channels + m_first;
            if (m_config.bias.empty())
                std::fill_n(out, m_count, 0.0f);
            else
                std::copy_n(m_config.bias.data() + m_first, m_count, out);
            for (size_t tap = 0; tap < length; ++tap) {
                // Row t - (length - 1) + tap of x; those before it are the state's.
                const size_t row = t + tap;
                const float* from = row >= length - 1 ? x + (row - (length - 1)) * channels
                                    : before          ? before + row * channels
                                                      : nullptr;
                if (from) add(m_config.weights.data() + tap * channels, from, out);
            }
        }
    }

    /// `before` may be `after`.
    void write_state(const float* before, const float* x, size_t tokens, float* after) const {
        const size_t kept = m_config.length - 1, channels = m_config.channels;
        for (size_t i = 0; i < kept; ++i) {
            const size_t row = tokens + i;  // of the state before and then x
            float* out = after + i * channels + m_first;
            if (row >= kept)
                std::memcpy(out, x + (row - kept) * channels + m_first, m_count * sizeof(float));
            else if (before)
                std::memmove(out, before + row * channels + m_first, m_count * sizeof(float));
            else
                std::fill_n(out, m_count, 0.0f);
        }
    }

private:
    void add(const float* weights, const float* x, float* out) const {
        weights += m_first;
        x += m_first;
        for (size_t c = 0; c < m_count; ++c) out[c] += weights[c] * x[c];
    }

    const ShortConvolutionConfig& m_config;
    const size_t m_first, m_count;
};

}  // namespace

void ShortConvolutionConfig::check() const {
    check_argument(channels > 0 && length >= 2, "a short convolution has ", channels,
                   " channels and ", length, " taps, expected at least 1 and 2");
    check_argument(weights.size() == length * channels, "a short convolution has ", weights.size(),
                   " weights, expected ", length * channels);
    check_argument(bias.empty() || bias.size() == channels, "a short convolution has ", bias.size(),
                   " biases, expected ", channels, " or none");
}

void short_convolution(const ShortConvolutionConfig& config, const BatchTables& tables,
                       const float* x, uint8_t* states, float* y) {
    const size_t channels = config.channels;
    const size_t parts = (channels + block_channels - 1) / block_channels;
    const auto state = [&](int32_t slot) {
        return slot < 0 ? nullptr
                        : reinterpret_cast<float*>(states + size_t(slot) * config.state_bytes());
    };
    const auto compute = [&](size_t item) {
        const size_t sequence = item / parts, first = item % parts * block_channels;
        const Part part(config, first, std::min(block_channels, channels - first));
        const size_t row = size_t(tables.written_begins[sequence]);
        const size_t tokens = size_t(tables.written_begins[sequence + 1]) - row;
        const float* before = state(tables.state_sources[sequence]);
        part.compute(before, x + row * channels, tokens, y + row * channels);
        part.write_state(before, x + row * channels, tokens, state(tables.state_targets[sequence]));
    };
    run_phases(Phase{tables.state_targets.size * parts, compute});
}

}  // namespace pagewheel::kernels
