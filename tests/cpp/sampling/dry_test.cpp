// DRY against its definition, written without regard to time.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <random>

#include "sampling/logits_chain.hpp"

namespace pagewheel {
namespace {

using Tokens = std::vector<int64_t>;
using Logits = std::vector<float>;

GenerationConfig dry(float multiplier = 1.0f, float base = 2.0f, size_t allowed = 2,
                     int last = -1) {
    GenerationConfig config;
    config.dry_multiplier = multiplier;
    config.dry_base = base;
    config.dry_allowed_length = allowed;
    config.dry_penalty_last_n = last;
    return config;
}

TokenRules breaking_at(const std::vector<Tokens>& sequences) {
    auto breakers = std::make_shared<SequenceBreakers>();
    for (const Tokens& sequence : sequences)
        (*breakers)[sequence.front()].emplace_back(sequence.begin() + 1, sequence.end());
    return {{}, breakers};
}

/// What is subtracted from each token's logit.
Logits penalties(const GenerationConfig& config, const Tokens& tokens,
                 const std::vector<Tokens>& breakers = {}, size_t vocabulary = 8) {
    Logits row(vocabulary, 0.0f);
    make_dry_multiplier(config, breaking_at(breakers))
        ->process({row.data(), row.size()}, {tokens, tokens.size()});
    for (float& value : row) value = 0.0f - value;
    return row;
}

/// For each token: the longest ending of the text that stood before it, without a breaker in it.
Logits defined(const GenerationConfig& config, Tokens tokens, const std::vector<Tokens>& breakers,
               size_t vocabulary) {
    if (config.dry_penalty_last_n >= 0 && tokens.size() > size_t(config.dry_penalty_last_n))
        tokens.erase(tokens.begin(), tokens.end() - config.dry_penalty_last_n);
    // The tokens behind the breaker that begins last; of those that begin there, the longest.
    size_t most = tokens.size();
    for (size_t begin = tokens.size(); begin-- > 0 && most == tokens.size();)
        for (const Tokens& breaker : breakers)
            if (begin + breaker.size() <= tokens.size() &&
                std::equal(breaker.begin(), breaker.end(), tokens.begin() + ptrdiff_t(begin)))
                most = std::min(most, tokens.size() - begin - breaker.size());
    Logits result(vocabulary, 0.0f);
    for (size_t token = 0; token < vocabulary; ++token) {
        if (std::count(breakers.begin(), breakers.end(), Tokens{int64_t(token)}) > 0) continue;
        std::optional<size_t> longest;
        for (size_t at = 0; at < tokens.size(); ++at) {
            if (tokens[at] != int64_t(token)) continue;
            size_t length = 0;
            while (length < std::min(at, most) &&
                   tokens[at - 1 - length] == tokens[tokens.size() - 1 - length])
                ++length;
            if (length >= config.dry_allowed_length)
                longest = std::max(longest.value_or(0), length);
        }
        if (longest)
            result[token] = config.dry_multiplier *
                            std::pow(config.dry_base, float(*longest - config.dry_allowed_length));
    }
    return result;
}

TEST(Dry, GrowsWithTheLengthOfWhatWouldBeRepeated) {
    // 1 2 came before 3, and 0 1 2 before 4.
    EXPECT_EQ(penalties(dry(), {1, 2, 3, 0, 1, 2, 4, 0, 1, 2}), (Logits{0, 0, 0, 1, 2, 0, 0, 0}));
    EXPECT_EQ(penalties(dry(0.5f, 3.0f, 1), {1, 2, 3, 0, 1, 2, 4, 0, 1, 2}),
              (Logits{0, 0, 0, 1.5f, 4.5f, 0, 0, 0}));
}

TEST(Dry, SeesNoRepetitionAcrossABreakerAndPunishesNone) {
    const Tokens tokens{0, 1, 2, 3, 0, 1, 2};
    EXPECT_EQ(penalties(dry(), tokens)[3], 2.0f);
    EXPECT_EQ(penalties(dry(), tokens, {{0}})[3], 1.0f);
    EXPECT_EQ(penalties(dry(), tokens, {{0, 1}})[3], 0.0f) << "one token is behind it";
    EXPECT_EQ(penalties(dry(), tokens, {{3}})[3], 0.0f) << "it is a breaker";
    EXPECT_EQ(penalties(dry(), tokens, {{3, 0}})[3], 1.0f) << "it is no breaker by itself";
}

TEST(Dry, LooksAtTheLastTokensOnly) {
    const Tokens tokens{0, 1, 2, 3, 0, 1, 2};
    EXPECT_EQ(penalties(dry(1, 2, 2, 6), tokens)[3], 1.0f);
    EXPECT_EQ(penalties(dry(1, 2, 2, 5), tokens)[3], 0.0f);
    EXPECT_EQ(make_dry_multiplier(dry(1, 2, 2, 0)), nullptr);
    EXPECT_EQ(make_dry_multiplier(dry(0)), nullptr);
}

TEST(Dry, IsItsDefinition) {
    std::mt19937 random(5);
    for (int round = 0; round < 3000; ++round) {
        const size_t vocabulary = 1 + random() % 5;
        const auto config =
            dry(1, 1.5f, 1 + random() % 3, random() % 3 == 0 ? int(1 + random() % 20) : -1);
        Tokens tokens(1 + random() % 40);
        for (int64_t& token : tokens) token = int64_t(random() % vocabulary);
        std::vector<Tokens> breakers(random() % 3);
        for (Tokens& breaker : breakers)
            for (size_t i = 1 + random() % 3; i > 0; --i)
                breaker.push_back(int64_t(random() % vocabulary));
        ASSERT_EQ(penalties(config, tokens, breakers, vocabulary),
                  defined(config, tokens, breakers, vocabulary));
    }
}

TEST(Dry, StaysFiniteHoweverLongTheRepetition) {
    const Logits found = penalties(dry(1.0f, 1000.0f), Tokens(5000, 3));
    EXPECT_GT(found[3], 1e37f);
    EXPECT_TRUE(std::isfinite(found[3]));
}

TEST(Dry, TakesTimeInProportionToTheTokens) {
    // All alike is the worst case: compared pair by pair it would take 10^10 steps.
    const Tokens tokens(100000, 3);
    const auto begin = std::chrono::steady_clock::now();
    penalties(dry(), tokens);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
}

}  // namespace
}  // namespace pagewheel
