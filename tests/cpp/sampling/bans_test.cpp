// Biases and bans of tokens and of sequences of them.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "sampling/log_probs.hpp"
#include "sampling/logits_chain.hpp"
#include "sampling/sampler.hpp"
#include "support/random_logits.hpp"

namespace pagewheel {
namespace {

using Tokens = std::vector<int64_t>;
using Logits = std::vector<float>;

Logits processed(const GenerationConfig& config, const Tokens& tokens, Logits logits,
                 const TokenRules& rules = {}) {
    LogitsChain(config, rules).process({logits.data(), logits.size()}, {tokens, 1});
    return logits;
}

Tokens banned(const GenerationConfig& config, const Tokens& tokens, size_t vocabulary = 10,
              const TokenRules& rules = {}) {
    const Logits row = processed(config, tokens, Logits(vocabulary, 0.0f), rules);
    Tokens found;
    for (size_t i = 0; i < vocabulary; ++i)
        if (row[i] == -inf) found.push_back(int64_t(i));
    return found;
}

TEST(LogitBias, IsAddedOnceToTheTokensItNames) {
    GenerationConfig config;
    config.logit_bias = {{0, -100.0f}, {2, 1.5f}, {9, 1.0f}};  // there is no logit 9
    EXPECT_EQ(processed(config, {0, 0}, {1.0f, 2.0f, -inf}), (Logits{-99.0f, 2.0f, -inf}));
}

TEST(SuppressedTokens, AreBanned) {
    GenerationConfig config;
    config.suppress_tokens = {1, 7, 99};
    EXPECT_EQ(banned(config, {1}), (Tokens{1, 7}));
}

TEST(AllowedTokens, AreAllThatIsNotBanned) {
    GenerationConfig config;
    config.allowed_token_ids = {0, 4, 5, 99};
    EXPECT_EQ(banned(config, {1}), (Tokens{1, 2, 3, 6, 7, 8, 9}));
    config.allowed_token_ids = {9};
    EXPECT_EQ(banned(config, {1}), (Tokens{0, 1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(AllowedTokens, KeepTheirLogits) {
    GenerationConfig config;
    config.allowed_token_ids = {1, 2};
    EXPECT_EQ(processed(config, {1}, {1.0f, 2.0f, -inf}), (Logits{-inf, 2.0f, -inf}));
}

TEST(BadWords, AreBannedWhereTheyWouldBeComplete) {
    GenerationConfig config;
    config.bad_words_ids = {{3}, {1, 2}, {5, 1, 7}, {8, 8, 8, 9}};
    EXPECT_EQ(banned(config, {1}), (Tokens{2, 3}));
    EXPECT_EQ(banned(config, {5, 1}), (Tokens{2, 3, 7}));
    EXPECT_EQ(banned(config, {5, 1, 0}), (Tokens{3}));
    EXPECT_EQ(banned(config, {8, 8}), (Tokens{3}));
    EXPECT_EQ(banned(config, {0, 8, 8, 8}), (Tokens{3, 9}));
}

TEST(BadWords, OfTextsAndOfIdsAreBothBanned) {
    GenerationConfig config;
    config.bad_words_ids = {{3}};
    EXPECT_EQ(banned(config, {1}, 10, {{{1, 4}}}), (Tokens{3, 4}));
}

TEST(BadWords, AreThoseThatASearchThroughAllOfThemFinds) {
    std::mt19937 random(3);
    for (int round = 0; round < 300; ++round) {
        GenerationConfig config;
        for (size_t i = random() % 40; i > 0; --i) {
            Tokens& word = config.bad_words_ids.emplace_back();
            for (size_t k = 1 + random() % 4; k > 0; --k) word.push_back(int64_t(random() % 6));
        }
        Tokens tokens(1 + random() % 6);
        for (int64_t& token : tokens) token = int64_t(random() % 6);
        Tokens expected;
        for (int64_t next = 0; next < 6; ++next) {
            Tokens longer = tokens;
            longer.push_back(next);
            for (const Tokens& word : config.bad_words_ids)
                if (word.size() <= longer.size() &&
                    std::equal(word.rbegin(), word.rend(), longer.rbegin())) {
                    expected.push_back(next);
                    break;
                }
        }
        ASSERT_EQ(banned(config, tokens, 6), expected);
    }
}

TEST(Bans, ThatLeaveNoTokenAreNamed) {
    GenerationConfig config;
    config.allowed_token_ids = {1};
    config.suppress_tokens = {1};
    for (const bool samples : {false, true}) {
        config.do_sample = samples;
        Sampler sampler(config, 0, Isa::scalar);
        Logits row(4, 1.0f);
        try {
            sampler.sample({{0}, 1}, row.data(), row.size());
            FAIL() << "a token was chosen";
        } catch (const LogitsError& error) {
            EXPECT_NE(std::string(error.what()).find("suppress_tokens"), std::string::npos);
        }
    }
}

}  // namespace
}  // namespace pagewheel
