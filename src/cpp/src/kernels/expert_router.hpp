// Which experts a row has, and what their outputs are multiplied with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/isa.hpp"

namespace pagewheel::kernels {

/// A layer's router, in f32. Logits are weights x + bias. A row has the `active` experts of the
/// highest scores + correction; of equal ones those of lower numbers. With several groups of
/// neighbouring experts they are chosen from the `active_groups` best, whose worth is the sum of
/// their `group_best` highest scores + correction.
struct ExpertRouter {
    enum class Scores { logits, softmax, sigmoid };

    size_t k = 0, experts = 0, active = 0;
    size_t groups = 1, active_groups = 1, group_best = 1;
    std::vector<float> weights;  // [experts, k]
    std::vector<float> bias;     // [experts] or empty
    Scores scores = Scores::softmax;
    std::vector<float> correction;  // [experts] or empty
    /// Weights are the scores of the chosen: their softmax, or divided by their sum, or as they
    /// are; times `scale`.
    bool softmax_of_chosen = false, normalise = false;
    float scale = 1;
    std::vector<float> expert_scales;  // [experts] or empty: what each expert's weight is times too
};

/// Of rows x [rows, k] to chosen and weights [rows, active]. Numbers that are not finite give some
/// experts.
void route(const ExpertRouter& router, const float* x, size_t rows, uint32_t* chosen,
           float* weights, Isa isa);

}  // namespace pagewheel::kernels
