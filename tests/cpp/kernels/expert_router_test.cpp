// The router of experts against the definition in double.
#include "kernels/expert_router.hpp"
#include "support/kernel_access.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

namespace pagewheel::kernels {
namespace {

std::vector<float> normal(size_t n, std::mt19937& random) {
    std::normal_distribution<float> distribution;
    std::vector<float> x(n);
    for (float& v : x) v = distribution(random);
    return x;
}

ExpertRouter make_router(size_t experts, size_t active, std::mt19937& random) {
    ExpertRouter router;
    router.k = 75;
    router.experts = experts;
    router.active = active;
    router.weights = normal(experts * router.k, random);
    return router;
}

/// A row's scores, those that the choice goes by, and the weights of the chosen.
struct Expected {
    std::vector<double> scores, corrected;

    Expected(const ExpertRouter& router, const float* x) {
        double sum = 0;
        for (size_t e = 0; e < router.experts; ++e) {
            double logit = router.bias.empty() ? 0 : double(router.bias[e]);
            for (size_t i = 0; i < router.k; ++i)
                logit += double(router.weights[e * router.k + i]) * double(x[i]);
            scores.push_back(router.scores == ExpertRouter::Scores::sigmoid
                                 ? 1 / (1 + std::exp(-logit))
                             : router.scores == ExpertRouter::Scores::softmax ? std::exp(logit)
                                                                              : logit);
            sum += scores[e];
        }
        if (router.scores == ExpertRouter::Scores::softmax)
            for (double& score : scores) score /= sum;
        corrected = scores;
        for (size_t e = 0; e < router.correction.size(); ++e)
            corrected[e] += double(router.correction[e]);
        if (router.groups > 1) leave_groups_out(router);
    }

    void leave_groups_out(const ExpertRouter& router) {
        const size_t size = router.experts / router.groups;
        std::vector<double> worth;
        for (size_t g = 0; g < router.groups; ++g) {
            std::vector<double> best(corrected.begin() + long(g * size),
                                     corrected.begin() + long((g + 1) * size));
            std::sort(best.begin(), best.end(), std::greater<double>());
            worth.push_back(
                std::accumulate(best.begin(), best.begin() + long(router.group_best), 0.0));
        }
        std::vector<double> sorted = worth;
        std::sort(sorted.begin(), sorted.end(), std::greater<double>());
        for (size_t e = 0; e < router.experts; ++e)
            if (worth[e / size] < sorted[router.active_groups - 1]) corrected[e] = -INFINITY;
    }

    std::vector<double> weights(const ExpertRouter& router, const uint32_t* chosen) const {
        std::vector<double> some;
        double sum = 0, exponentials = 0;
        for (size_t j = 0; j < router.active; ++j) {
            some.push_back(scores[chosen[j]]);
            sum += some[j];
            exponentials += std::exp(some[j]);
        }
        for (double& weight : some) {
            if (router.softmax_of_chosen) weight = std::exp(weight) / exponentials;
            if (router.normalise) weight /= sum;
            weight *= double(router.scale);
        }
        for (size_t j = 0; j < router.expert_scales.size() && j < router.active; ++j)
            some[j] *= double(router.expert_scales[chosen[j]]);
        return some;
    }
};

void expect_route(const ExpertRouter& router, std::mt19937& random) {
    const size_t rows = 23, active = router.active;
    const std::vector<float> x = normal(rows * router.k, random);
    for (const Isa isa : available_isas()) {
        std::vector<uint32_t> chosen(rows * active);
        std::vector<float> weights(rows * active);
        route(router, x.data(), rows, chosen.data(), weights.data(), isa);
        for (size_t r = 0; r < rows; ++r) {
            const Expected expected(router, x.data() + r * router.k);
            const uint32_t* of_row = chosen.data() + r * active;
            std::vector<bool> is_chosen(router.experts);
            double least = INFINITY, best_left = -INFINITY;
            for (size_t j = 0; j < active; ++j) {
                ASSERT_LT(of_row[j], router.experts);
                EXPECT_FALSE(is_chosen[of_row[j]]);
                is_chosen[of_row[j]] = true;
                least = std::min(least, expected.corrected[of_row[j]]);
            }
            for (size_t e = 0; e < router.experts; ++e)
                if (!is_chosen[e]) best_left = std::max(best_left, expected.corrected[e]);
            EXPECT_GE(least, best_left - 1e-4) << isa.name();
            const std::vector<double> wanted = expected.weights(router, of_row);
            for (size_t j = 0; j < active; ++j)
                EXPECT_NEAR(double(weights[r * active + j]), wanted[j], 1e-4) << isa.name();
        }
    }
}

TEST(ExpertRouter, ChoosesTheBestOfEachKindOfScores) {
    std::mt19937 random(1);
    using Scores = ExpertRouter::Scores;
    for (const Scores scores : {Scores::logits, Scores::softmax, Scores::sigmoid})
        for (const size_t active : {1, 4, 37}) {
            ExpertRouter router = make_router(37, active, random);
            router.scores = scores;
            router.softmax_of_chosen = scores == Scores::logits;
            router.normalise = scores == Scores::sigmoid;
            router.scale = 1.5f;
            expect_route(router, random);
            router.bias = normal(router.experts, random);
            router.correction = normal(router.experts, random);
            router.expert_scales = normal(router.experts, random);
            expect_route(router, random);
        }
}

TEST(ExpertRouter, IsTheDefinitionForGroups) {
    std::mt19937 random(4);
    for (const size_t group_best : {1, 2})
        for (const size_t active_groups : {1, 3, 8}) {
            ExpertRouter router = make_router(40, 5, random);
            router.groups = 8;
            router.active_groups = active_groups;
            router.group_best = group_best;
            router.scores = ExpertRouter::Scores::sigmoid;
            router.correction = normal(router.experts, random);
            expect_route(router, random);
        }
}

TEST(ExpertRouter, ChoosesFromTheBestGroups) {
    ExpertRouter router;
    router.k = 6;  // a row's logits are the row
    router.experts = 6;
    router.active = 3;
    router.groups = 3;
    router.active_groups = 2;
    router.scores = ExpertRouter::Scores::logits;
    router.weights.resize(36);
    for (size_t i = 0; i < 6; ++i) router.weights[i * 7] = 1;
    const std::vector<float> x{9, -8, 4, 5, 3, 1};
    const auto chosen_of = [&] {
        std::vector<uint32_t> chosen(3);
        std::vector<float> weights(3);
        route(router, x.data(), 1, chosen.data(), weights.data(), detected_isa());
        for (size_t j = 0; j < 3; ++j) EXPECT_FLOAT_EQ(weights[j], x[chosen[j]]);
        return chosen;
    };
    EXPECT_EQ(chosen_of(), (std::vector<uint32_t>{0, 3, 2}));
    router.group_best = 2;  // the first group's are 1 together
    EXPECT_EQ(chosen_of(), (std::vector<uint32_t>{3, 2, 4}));
    router.correction = {0, 20, 0, 0, 0, 0};
    EXPECT_EQ(chosen_of(), (std::vector<uint32_t>{1, 0, 3}));
}

TEST(ExpertRouter, OfEqualScoresTheLowerNumberIsChosen) {
    std::mt19937 random(2);
    ExpertRouter router = make_router(8, 3, random);
    std::fill(router.weights.begin(), router.weights.end(), 0.5f);
    const std::vector<float> x = normal(router.k, random);
    std::vector<uint32_t> chosen(3);
    std::vector<float> weights(3);
    route(router, x.data(), 1, chosen.data(), weights.data(), detected_isa());
    EXPECT_EQ(chosen, (std::vector<uint32_t>{0, 1, 2}));
    for (const float weight : weights) EXPECT_FLOAT_EQ(weight, 0.125f);
}

TEST(ExpertRouter, ARowThatIsNotANumberGetsSomeExperts) {
    std::mt19937 random(3);
    const ExpertRouter router = make_router(8, 2, random);
    const std::vector<float> x(router.k, NAN);
    std::vector<uint32_t> chosen(2);
    std::vector<float> weights(2);
    route(router, x.data(), 1, chosen.data(), weights.data(), detected_isa());
    EXPECT_LT(chosen[0], 8u);
    EXPECT_LT(chosen[1], 8u);
    EXPECT_TRUE(std::isnan(weights[0]));
}

}  // namespace
}  // namespace pagewheel::kernels
