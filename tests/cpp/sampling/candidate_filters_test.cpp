#include "sampling/candidate_filters.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

#include "sampling/shortlist.hpp"

namespace pagewheel {
namespace {

size_t kept(const CandidateFilter& filter, const std::vector<double>& weights, double total) {
    return filter.keep({weights.data(), weights.size(), total});
}

/// The filter that one parameter asks for.
template <class T>
std::optional<CandidateFilter> filter(
    std::optional<CandidateFilter> (*make)(const GenerationConfig&),
    T GenerationConfig::* parameter, T value) {
    GenerationConfig config;
    config.*parameter = value;
    return make(config);
}
std::optional<CandidateFilter> top_k(size_t k) {
    return filter(&make_top_k, &GenerationConfig::top_k, k);
}
std::optional<CandidateFilter> top_p(float p) {
    return filter(&make_top_p, &GenerationConfig::top_p, p);
}
std::optional<CandidateFilter> min_p(float p) {
    return filter(&make_min_p, &GenerationConfig::min_p, p);
}

TEST(TopK, KeepsTheFirstK) {
    EXPECT_EQ(kept(*top_k(2), {1.0, 0.5, 0.5}, 0), 2u);
    EXPECT_EQ(kept(*top_k(3), {1.0, 0.5, 0.5}, 0), 3u);
    EXPECT_EQ(kept(*top_k(9), {1.0, 0.5, 0.5}, 0), 3u);
    EXPECT_EQ(top_k(9)->bound.count, 9u);
    EXPECT_TRUE(top_k(9)->keeps_all_of >= 9);
    EXPECT_FALSE(top_k(9)->keeps_all_of >= 10);
}

TEST(TopP, KeepsTheFewestThatReachTheirShareOfTheTotal) {
    const std::vector<double> weights{1.0, 0.5, 0.25, 0.25};
    EXPECT_EQ(kept(*top_p(0.5f), weights, 2.0), 1u);  // exactly
    EXPECT_EQ(kept(*top_p(0.51f), weights, 2.0), 2u);
    EXPECT_EQ(kept(*top_p(0.875f), weights, 2.0), 3u);
    EXPECT_EQ(kept(*top_p(0.875f), weights, 4.0), 4u) << "what is not listed counts";
    EXPECT_EQ(kept(*top_p(1e-45f), weights, 2.0), 1u);
    EXPECT_TRUE(top_p(0.5f)->needs_total);
}

TEST(MinP, KeepsWhatIsAsLikelyAsItsShareOfTheBest) {
    const std::vector<double> weights{1.0, 0.5, 0.25, 0.25, 0.125};
    EXPECT_EQ(kept(*min_p(0.25f), weights, 0), 4u);
    EXPECT_EQ(kept(*min_p(0.26f), weights, 0), 2u);
    EXPECT_EQ(kept(*min_p(0.01f), weights, 0), 5u);
    EXPECT_EQ(kept(*min_p(0.999f), weights, 0), 1u);
    EXPECT_EQ(min_p(0.25f)->bound.weight, 0.25f);
}

TEST(CandidateFilters, TheTableHasEachParameterOfSamplingInOrder) {
    GenerationConfig config;
    for (const FilterKind& kind : candidate_filters())
        EXPECT_FALSE(kind.make(config)) << kind.parameter;
    std::vector<std::string> order;
    for (const FilterKind& kind : candidate_filters()) {
        order.push_back(kind.parameter);
        const bool is_count = kind.parameter.find("_k") != std::string::npos;
        GenerationConfig one;
        one.update_from_json("{\"" + kind.parameter + "\": " + (is_count ? "5" : "0.5") + "}");
        for (const FilterKind& other : candidate_filters())
            EXPECT_EQ(other.make(one).has_value(), &other == &kind) << kind.parameter;
    }
    EXPECT_EQ(order, (std::vector<std::string>{"top_k", "top_p", "min_p"}));
    config.top_k = 0;  // as unlimited
    EXPECT_FALSE(make_top_k(config));
}

TEST(CandidateFilters, NoTotalIsNeededBeforeABoundOnTheCountNorAfterOneOnTheWeight) {
    GenerationConfig config;
    config.top_k = 5;
    config.top_p = config.min_p = 0.5f;
    bool had_total = false, had_weight = false;
    for (const FilterKind& kind : candidate_filters()) {
        const auto filter = kind.make(config);
        EXPECT_FALSE(filter->needs_total && had_weight) << kind.parameter;
        EXPECT_FALSE(filter->bound.count < CandidateBound().count && had_total) << kind.parameter;
        had_total = had_total || filter->needs_total;
        had_weight = had_weight || filter->bound.weight > 0;
    }
}

/// A full sort, then every filter in turn.
std::vector<int64_t> by_definition(const GenerationConfig& config,
                                   const std::vector<float>& logits) {
    std::vector<int64_t> ids(logits.size());
    std::iota(ids.begin(), ids.end(), 0);
    std::stable_sort(ids.begin(), ids.end(),
                     [&](int64_t a, int64_t b) { return logits[size_t(a)] > logits[size_t(b)]; });
    std::vector<double> weights;
    for (int64_t id : ids)
        weights.push_back(std::exp(double(logits[size_t(id)] - logits[size_t(ids[0])]) /
                                   double(config.temperature)));
    for (const FilterKind& kind : candidate_filters()) {
        const auto filter = kind.make(config);
        if (!filter) continue;
        const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
        weights.resize(kept(*filter, weights, total));
    }
    ids.resize(weights.size());
    return ids;
}

template <class T>
T one_of(std::mt19937& random, const std::vector<T>& values) {
    return values[random() % values.size()];
}

TEST(Shortlist, IsWhatTheFiltersLeaveOfAFullSort) {
    std::mt19937 random(3);
    std::set<size_t> lengths;
    for (int round = 0; round < 600; ++round) {
        GenerationConfig config;
        config.temperature = one_of<float>(random, {0.3f, 1.0f, 1.0f, 5.0f});
        config.top_k = one_of<size_t>(random, {0, 1, 7, 64, 100, 1000});
        config.top_p = one_of<float>(random, {1.0f, 0.3f, 0.9f, 0.99f});
        config.min_p = one_of<float>(random, {0.0f, 0.001f, 0.05f, 0.5f});
        std::normal_distribution<float> normal(0.0f, 3.0f);
        std::vector<float> logits(one_of<size_t>(random, {1, 5, 63, 64, 65, 3000}));
        for (float& logit : logits) logit = normal(random);
        const double scale = 1.0 / double(config.temperature);
        Shortlist shortlist(config, scale, detected_isa());
        const std::vector<int64_t> expected = by_definition(config, logits);
        if (shortlist.keeps_all(logits.size())) {
            EXPECT_EQ(expected.size(), logits.size());
            continue;
        }
        shortlist.fill(logits.data(), logits.size());
        std::vector<int64_t> found;
        for (const TokenLogit& token : shortlist.tokens()) found.push_back(token.id);
        ASSERT_EQ(found, expected) << "top_k " << config.top_k << " top_p " << config.top_p
                                   << " min_p " << config.min_p << " n " << logits.size();
        ASSERT_EQ(shortlist.weights().size(), found.size());
        for (size_t i = 0; i < found.size(); ++i)
            ASSERT_EQ(shortlist.weights()[i],
                      std::exp(double(shortlist.tokens()[i].logit - shortlist.tokens()[0].logit) *
                               scale));
        lengths.insert(found.size());
    }
    EXPECT_GT(lengths.size(), 50u);
    EXPECT_GT(*lengths.rbegin(), 512u) << "none grew beyond the second length";
}

}  // namespace
}  // namespace pagewheel
