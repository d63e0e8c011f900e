#include "sampling/token_random.hpp"

namespace pagewheel {

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
    constexpr uint64_t multipliers[] = {0xD2511F53, 0xCD9E8D57};
    constexpr uint32_t increments[] = {0x9E3779B9, 0xBB67AE85};  // golden ratio, sqrt(3) - 1
    for (int round = 0; round < 10; ++round) {
        const uint64_t a = multipliers[0] * counter[0], b = multipliers[1] * counter[2];
        counter = {uint32_t(b >> 32) ^ counter[1] ^ key[0], uint32_t(b),
                   uint32_t(a >> 32) ^ counter[3] ^ key[1], uint32_t(a)};
        for (size_t i = 0; i < 2; ++i) key[i] += increments[i];
    }
    return counter;
}

double TokenRandom::uniform(Draw draw) const {
    // Two numbers to a block, 53 bits of two words each.
    const auto number = uint32_t(draw);
    const auto words = philox({uint32_t(m_position), uint32_t(m_index), number / 2, 0},
                              {uint32_t(m_seed), uint32_t(m_seed >> 32)});
    const size_t first = number % 2 * 2;
    const uint64_t bits = (uint64_t(words[first]) << 32) | words[first + 1];
    return double(bits >> 11) * 0x1p-53;
}

}  // namespace pagewheel
