#include "kernels/expert_router.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/kernels.hpp"
#include "kernels/team.hpp"

namespace pagewheel::kernels {
namespace {

void softmax(float* x, size_t count) {
    const float most = *std::max_element(x, x + count);
    float sum = 0;
    for (size_t i = 0; i < count; ++i) sum += x[i] = std::exp(x[i] - most);
    for (size_t i = 0; i < count; ++i) x[i] /= sum;
}

void to_scores(const ExpertRouter& router, float* x) {
    switch (router.scores) {
        case ExpertRouter::Scores::logits:
            return;
        case ExpertRouter::Scores::softmax:
            return softmax(x, router.experts);
        case ExpertRouter::Scores::sigmoid:
            for (size_t i = 0; i < router.experts; ++i) x[i] = 1.0f / (1.0f + std::exp(-x[i]));
            return;
    }
    __builtin_unreachable();
}

/// The numbers 0 to count - 1, of which the first `best` have the highest values, equal ones in
/// their order.
const uint32_t* order(const float* values, size_t count, size_t best,
                      std::vector<uint32_t>& numbers) {
    numbers.resize(count);
    std::iota(numbers.begin(), numbers.end(), 0u);
    std::partial_sort(numbers.begin(), numbers.begin() + long(best), numbers.end(),
                      [&](uint32_t a, uint32_t b) {
                          return values[a] != values[b] ? values[a] > values[b] : a < b;
                      });
    return numbers.data();
}

/// Makes the experts of all groups but the best -INFINITY.
void leave_groups_out(const ExpertRouter& router, float* corrected) {
    static thread_local std::vector<uint32_t> numbers;
    static thread_local std::vector<float> worth;
    const size_t size = router.experts / router.groups;
    worth.assign(router.groups, 0.0f);
    for (size_t g = 0; g < router.groups; ++g) {
        const float* scores = corrected + g * size;
        const uint32_t* best = order(scores, size, router.group_best, numbers);
        for (size_t i = 0; i < router.group_best; ++i) worth[g] += scores[best[i]];
        if (std::isnan(worth[g])) worth[g] = -INFINITY;  // of infinite scores
    }
    const uint32_t* best = order(worth.data(), router.groups, router.groups, numbers);
    for (size_t i = router.active_groups; i < router.groups; ++i)
        std::fill_n(corrected + best[i] * size, size, -INFINITY);
}

/// From a row's logits.
void choose(const ExpertRouter& router, float* scores, uint32_t* chosen, float* weights) {
    for (size_t i = 0; i < router.bias.size(); ++i) scores[i] += router.bias[i];
    to_scores(router, scores);
    static thread_local std::vector<uint32_t> numbers;
    static thread_local std::vector<float> corrected;
    corrected.assign(scores, scores + router.experts);
    for (size_t i = 0; i < router.correction.size(); ++i) corrected[i] += router.correction[i];
    for (float& score : corrected)
        if (std::isnan(score)) score = -INFINITY;  // which an order needs
    if (router.groups > 1) leave_groups_out(router, corrected.data());
    order(corrected.data(), router.experts, router.active, numbers);
    float sum = 0;
    for (size_t j = 0; j < router.active; ++j) {
        chosen[j] = numbers[j];
        weights[j] = scores[numbers[j]];
        sum += weights[j];
    }
    if (router.softmax_of_chosen) softmax(weights, router.active);
    for (size_t j = 0; j < router.active; ++j) {
        weights[j] = (router.normalise ? weights[j] / sum : weights[j]) * router.scale;
        if (!router.expert_scales.empty()) weights[j] *= router.expert_scales[chosen[j]];
    }
}

}  // namespace

void route(const ExpertRouter& router, const float* x, size_t rows, uint32_t* chosen,
           float* weights, Isa isa) {
    const auto inner_products = isa.kernels().linear.inner_products;
    static thread_local std::vector<float> own_logits;
    std::vector<float>& logits = own_logits;
    logits.resize(rows * router.experts);
    // Parts of a few experts: one row alone is more than one thread's work.
    constexpr size_t part = 16;
    const size_t parts = (router.experts + part - 1) / part;
    run_phases(StreamPhase{parts * rows,
                           [&](size_t i) {
                               const size_t row = i / parts, first = i % parts * part;
                               inner_products(x + row * router.k,
                                              router.weights.data() + first * router.k, router.k,
                                              std::min(part, router.experts - first),
                                              logits.data() + row * router.experts + first);
                           }},
               Phase{rows, [&](size_t row) {
                         choose(router, logits.data() + row * router.experts,
                                chosen + row * router.active, weights + row * router.active);
                     }});
}

}  // namespace pagewheel::kernels
