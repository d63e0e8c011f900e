// Logits of no model.
#pragma once

#include <cstddef>
#include <limits>
#include <random>
#include <vector>

namespace pagewheel {

constexpr float inf = std::numeric_limits<float>::infinity();

/// `n` values of a normal distribution around 0.
inline std::vector<float> random_logits(size_t n, unsigned seed, float deviation) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0f, deviation);
    std::vector<float> logits(n);
    for (float& logit : logits) logit = normal(random);
    return logits;
}

}  // namespace pagewheel
