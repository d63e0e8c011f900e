// The randomness of a token: a function of seed, sequence and position.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace pagewheel {

/// Philox 4x32 with 10 rounds (Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy
/// as 1, 2, 3"): counters and keys to words that are as good as random.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// What numbers are drawn for. Each gives another number.
enum class Draw { TOKEN, XTC };

/// Of one token of one sequence. Nothing else than these three goes into it: neither what was drawn
/// before, nor what is computed beside it.
class TokenRandom {
public:
    /// The generated token `position` of a request's sequence `index`, both below 2^32.
    TokenRandom(uint64_t seed, size_t index, size_t position)
        : m_seed(seed), m_index(index), m_position(position) {}

    /// At least 0, less than 1; a multiple of 2^-53.
    double uniform(Draw draw) const;

private:
    uint64_t m_seed;
    size_t m_index, m_position;
};

}  // namespace pagewheel
