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

/// From a row's logits.
void choose(const ExpertRouter& router, float* scores, uint32_t* chosen, float* weights) {
    for (size_t i = 0; i < router.bias.size(); ++i) scores[i] += router.bias[i];
    to_scores(router, scores);
    static thread_local std::vector<uint32_t> numbers;
    static thread_local std::vector<float> corrected;
    numbers.resize(router.experts);
    corrected.assign(scores, scores + router.experts);
    for (size_t i = 0; i < router.correction.size(); ++i) corrected[i] += router.correction[i];
    for (float& score : corrected)
        if (std::isnan(score)) score = -INFINITY;  // which an order needs
    std::iota(numbers.begin(), numbers.end(), 0u);
    std::partial_sort(numbers.begin(), numbers.begin() + long(router.active), numbers.end(),
                      [](uint32_t a, uint32_t b) {
                          return corrected[a] != corrected[b] ? corrected[a] > corrected[b] : a < b;
                      });
    float sum = 0;
    for (size_t j = 0; j < router.active; ++j) {
        chosen[j] = numbers[j];
        weights[j] = scores[numbers[j]];
        sum += weights[j];
    }
    if (router.softmax_of_chosen) softmax(weights, router.active);
    for (size_t j = 0; j < router.active; ++j)
        weights[j] = (router.normalise ? weights[j] / sum : weights[j]) * router.scale;
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
