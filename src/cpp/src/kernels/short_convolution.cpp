#include "kernels/short_convolution.hpp"

#include <algorithm>
#include <cstring>

#include "base/check.hpp"
#include "kernels/kernels.hpp"
#include "kernels/team.hpp"

namespace pagewheel::kernels {
namespace {

/// What a thread takes at a time. Its rows of three or four taps fit the first-level cache.
constexpr size_t block_channels = 256;

/// The part's channels of the last tokens. `part.before` may be `after`.
void write_state(const ConvolutionPart& part, float* after) {
    const size_t kept = part.length - 1, channels = part.channels;
    for (size_t i = 0; i < kept; ++i) {
        const size_t row = part.tokens + i;  // of the state before and then x
        float* out = after + i * channels + part.first;
        const size_t bytes = part.count * sizeof(float);
        if (row >= kept)
            std::memcpy(out, part.x + (row - kept) * channels + part.first, bytes);
        else if (part.before)
            std::memmove(out, part.before + row * channels + part.first, bytes);
        else
            std::memset(out, 0, bytes);
    }
}

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
                       const float* x, uint8_t* states, float* y, Isa isa) {
    const size_t channels = config.channels;
    auto* const convolve = isa.kernels().state.convolve;
    const size_t parts = (channels + block_channels - 1) / block_channels;
    const auto state = [&](int32_t slot) {
        return slot < 0 ? nullptr
                        : reinterpret_cast<float*>(states + size_t(slot) * config.state_bytes());
    };
    const auto compute = [&](size_t item) {
        const size_t sequence = item / parts, first = item % parts * block_channels;
        ConvolutionPart part{};
        part.channels = channels;
        part.length = config.length;
        part.weights = config.weights.data();
        part.bias = config.bias.empty() ? nullptr : config.bias.data();
        part.silu = config.silu;
        part.first = first;
        part.count = std::min(block_channels, channels - first);
        tables.for_states(sequence, [&](size_t row, size_t tokens, int32_t source, int32_t target) {
            part.before = state(source);
            part.x = x + row * channels;
            part.tokens = tokens;
            part.y = y + row * channels;
            convolve(part);
            write_state(part, state(target));
        });
    };
    run_phases(Phase{tables.state_targets.size * parts, compute});
}

}  // namespace pagewheel::kernels
