// Log-probabilities for callers.
#include "sampling/log_probs.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "sampling/beam_search.hpp"
#include "sampling/sampler.hpp"
#include "support/random_logits.hpp"

namespace pagewheel {
namespace {

using Logits = std::vector<float>;

TEST(LogProbs, AreThoseOfSortingAllTokens) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0, 4);
    for (const Isa isa : {Isa::scalar, detected_isa()}) {
        Logits row(5000);
        for (float& logit : row) logit = normal(random);
        double total = 0;
        for (const float logit : row) total += std::exp(double(logit));
        std::vector<TokenLogProb> top;
        LogProbs(row.data(), row.size(), isa).find_top(20, 4321, top);
        std::vector<size_t> order(row.size());
        for (size_t i = 0; i < order.size(); ++i) order[i] = i;
        std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return row[a] > row[b]; });
        ASSERT_EQ(top.size(), 21u);
        EXPECT_EQ(top.back().id, 4321);
        for (size_t i = 0; i < 20; ++i) EXPECT_EQ(top[i].id, int64_t(order[i]));
        for (const TokenLogProb& token : top)
            EXPECT_NEAR(token.log_prob, double(row[size_t(token.id)]) - std::log(total), 1e-5);
    }
}

TEST(LogProbs, HaveTheChosenTokenOnceAndNoneOfProbabilityZero) {
    const Logits row{1.0f, -inf, 3.0f, 2.0f};
    std::vector<TokenLogProb> top;
    const auto ids = [&](size_t count, int64_t chosen) {
        LogProbs(row.data(), row.size(), Isa::scalar).find_top(count, chosen, top);
        std::vector<int64_t> found;
        for (const TokenLogProb& token : top) found.push_back(token.id);
        return found;
    };
    EXPECT_EQ(ids(2, 3), (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(ids(2, 0), (std::vector<int64_t>{2, 3, 0}));
    EXPECT_EQ(ids(9, 2), (std::vector<int64_t>{2, 3, 0}));
}

TEST(Sampler, GivesTheLikeliestTokensOfWhatProcessorsLeftBeforeTemperatureAndFilters) {
    GenerationConfig config;
    config.do_sample = true;
    config.temperature = 0.5f;
    config.top_k = 1;
    config.suppress_tokens = {2};
    config.logprobs = 2;
    Logits row{1.0f, 2.0f, 9.0f};
    Sampler sampler(config, 0, Isa::scalar);
    EXPECT_EQ(sampler.sample({{0}, 1}, row.data(), row.size()).id, 1);
    const auto& top = sampler.top_log_probs();
    ASSERT_EQ(top.size(), 2u);
    const double total = std::log(std::exp(1.0) + std::exp(2.0));
    EXPECT_EQ(top[0].id, 1);
    EXPECT_NEAR(top[0].log_prob, 2 - total, 1e-6);
    EXPECT_NEAR(top[1].log_prob, 1 - total, 1e-6);
}

TEST(Sampler, LooksForNoLikeliestTokensUnasked) {
    Sampler sampler({}, 0, Isa::scalar);
    Logits row{1.0f, 2.0f};
    sampler.sample({{0}, 1}, row.data(), row.size());
    EXPECT_TRUE(sampler.top_log_probs().empty());
}

TEST(BeamSearch, GivesTheLikeliestTokensOfEachStep) {
    GenerationConfig config;
    config.num_beams = config.num_return_sequences = 2;
    config.logprobs = 3;
    BeamSearch search(config, 1, 2, Isa::scalar, LogitsChain(config));
    const auto never = [](size_t, int64_t) { return false; };
    Logits row{0.0f, 3.0f, 2.0f, 1.0f};
    search.score(0, {0}, row.data(), row.size());
    search.advance(never);
    for (size_t slot = 0; slot < 2; ++slot) {
        Logits next{3.0f, 0.0f, 1.0f, 2.0f};
        search.score(slot, {0, int64_t(slot) + 1}, next.data(), next.size());
    }
    search.advance(never);
    for (const Hypothesis& found : search.best()) {
        ASSERT_EQ(found.top_log_probs.size(), 2u);
        EXPECT_EQ(found.top_log_probs[0][0].id, 1);
        EXPECT_EQ(found.top_log_probs[0][1].id, 2);
        EXPECT_EQ(found.top_log_probs[1][0].id, 0);
        EXPECT_EQ(found.top_log_probs[1].size(), 3u);
        for (const TokenLogProb& token : found.top_log_probs[1])
            if (token.id == found.tokens[1]) {
                EXPECT_FLOAT_EQ(token.log_prob, found.log_probs[1]);
            }
    }
}

TEST(BeamSearch, RefusesBansThatLeaveNoFirstToken) {
    GenerationConfig config;
    config.num_beams = 2;
    config.allowed_token_ids = config.suppress_tokens = {1};
    BeamSearch search(config, 1, 2, Isa::scalar, LogitsChain(config));
    Logits row(4, 0.0f);
    search.score(0, {0}, row.data(), row.size());
    EXPECT_THROW(search.advance([](size_t, int64_t) { return false; }), LogitsError);
}

}  // namespace
}  // namespace pagewheel
