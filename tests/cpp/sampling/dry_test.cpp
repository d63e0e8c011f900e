// DRY against its definition, written without regard to time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
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

using Texts = std::vector<std::string>;

/// Of breakers in the texts of tokens.
TokenRules breaking_at(const Texts& breakers, const Texts& vocabulary) {
    TokenRules rules;
    rules.breakers = std::make_shared<SequenceBreakers>(
        SequenceBreakers{TextAutomaton({breakers.begin(), breakers.end()}),
                         std::make_shared<const Texts>(vocabulary)});
    return rules;
}

/// What is subtracted from each token's logit.
Logits penalties(LogitsProcessor& processor, const Tokens& tokens, size_t prompt_length,
                 size_t vocabulary) {
    Logits row(vocabulary, 0.0f);
    processor.process({row.data(), row.size()}, {tokens, prompt_length});
    for (float& value : row) value = 0.0f - value;
    return row;
}

const Texts letters{"a", "b", "c", "d", "e", "f", "g", "h"};

Logits penalties(const GenerationConfig& config, const Tokens& tokens, const Texts& breakers = {}) {
    return penalties(*make_dry_multiplier(config, breaking_at(breakers, letters)), tokens,
                     tokens.size(), letters.size());
}

/// Tokens behind the breaker whose first byte is in the latest token, and of those the one whose
/// last byte is. All are behind where none is in the tokens from `begin` on.
size_t num_behind_breaker(const Tokens& tokens, size_t begin, const Texts& breakers,
                          const Texts& vocabulary) {
    std::string text;
    std::vector<size_t> owners;  // by byte
    for (size_t i = 0; i < tokens.size(); ++i) {
        text += vocabulary[size_t(tokens[i])];
        owners.resize(text.size(), i);
    }
    std::optional<std::pair<size_t, size_t>> latest;  // its first and last token
    for (const std::string& breaker : breakers)
        for (size_t at = 0; at + breaker.size() <= text.size(); ++at)
            if (text.compare(at, breaker.size(), breaker) == 0 && owners[at] >= begin)
                latest = std::max(latest.value_or(std::pair<size_t, size_t>(0, 0)),
                                  {owners[at], owners[at + breaker.size() - 1]});
    return latest ? tokens.size() - 1 - latest->second : tokens.size() - begin;
}

/// For each token: the longest ending of the text that stood before it, without a breaker in it.
Logits defined(const GenerationConfig& config, const Tokens& tokens, const Texts& breakers,
               const Texts& vocabulary) {
    const size_t begin =
        config.dry_penalty_last_n >= 0
            ? tokens.size() - std::min(tokens.size(), size_t(config.dry_penalty_last_n))
            : 0;
    const size_t most = num_behind_breaker(tokens, begin, breakers, vocabulary);
    Logits result(vocabulary.size(), 0.0f);
    for (size_t token = 0; token < vocabulary.size(); ++token) {
        const auto is_in = [&](const std::string& breaker) {
            return vocabulary[token].find(breaker) != std::string::npos;
        };
        if (std::any_of(breakers.begin(), breakers.end(), is_in)) continue;
        std::optional<size_t> longest;
        for (size_t at = begin; at < tokens.size(); ++at) {
            if (tokens[at] != int64_t(token)) continue;
            size_t length = 0;
            while (length < std::min(at - begin, most) &&
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
    const Tokens tokens{0, 1, 2, 3, 0, 1, 2};  // abcdabc
    EXPECT_EQ(penalties(dry(), tokens)[3], 2.0f);
    EXPECT_EQ(penalties(dry(), tokens, {"a"})[3], 1.0f);
    EXPECT_EQ(penalties(dry(), tokens, {"ab"})[3], 0.0f) << "one token is behind it";
    EXPECT_EQ(penalties(dry(), tokens, {"d"})[3], 0.0f) << "it is a breaker";
    EXPECT_EQ(penalties(dry(), tokens, {"da"})[3], 1.0f) << "it is no breaker by itself";
}

TEST(Dry, FindsBreakersInsideOfTokensAndAcrossThemHoweverTheyAreWritten) {
    const Texts vocabulary{"x", "y", "z", "a\n", "\nb", "\n", "a", ""};
    const auto penalty_of_z = [&](const Tokens& tokens, const Texts& breakers) {
        return penalties(*make_dry_multiplier(dry(), breaking_at(breakers, vocabulary)), tokens,
                         tokens.size(), vocabulary.size())[2];
    };
    EXPECT_EQ(penalty_of_z({5, 0, 1, 2, 5, 0, 1}, {}), 2.0f);
    for (const Tokens& line : {Tokens{3}, Tokens{4}, Tokens{5}, Tokens{6, 5}, Tokens{6, 7, 5}}) {
        Tokens tokens = line;
        tokens.insert(tokens.end(), {0, 1, 2});
        tokens.insert(tokens.end(), line.begin(), line.end());
        tokens.insert(tokens.end(), {0, 1});
        EXPECT_EQ(penalty_of_z(tokens, {"\n"}), 1.0f);
        if (line.front() == 4 || line.front() == 5) continue;
        EXPECT_EQ(penalty_of_z(tokens, {"a\n"}), 1.0f);
    }
}

TEST(Dry, LooksAtTheLastTokensOnly) {
    const Tokens tokens{0, 1, 2, 3, 0, 1, 2};
    EXPECT_EQ(penalties(dry(1, 2, 2, 6), tokens)[3], 1.0f);
    EXPECT_EQ(penalties(dry(1, 2, 2, 5), tokens)[3], 0.0f);
    EXPECT_EQ(make_dry_multiplier(dry(1, 2, 2, 0)), nullptr);
    EXPECT_EQ(make_dry_multiplier(dry(0)), nullptr);
}

/// Of sequences that grow by one token or some, and fork.
TEST(Dry, IsItsDefinition) {
    std::mt19937 random(5);
    const auto text_of = [&](size_t least, size_t most) {
        std::string text;
        for (size_t size = least + random() % (most - least + 1); text.size() < size;)
            text += "ab"[random() % 2];
        return text;
    };
    for (int round = 0; round < 2000; ++round) {
        Texts vocabulary(1 + random() % 5), breakers(random() % 3);
        for (std::string& token : vocabulary) token = text_of(0, 3);
        for (std::string& breaker : breakers) breaker = text_of(1, 5);
        const auto config =
            dry(1, 1.5f, 1 + random() % 3, random() % 3 == 0 ? int(1 + random() % 20) : -1);
        const auto append = [&](Tokens& tokens) {
            tokens.push_back(int64_t(random() % vocabulary.size()));
        };
        Tokens prompt;
        for (size_t i = 1 + random() % 30; i > 0; --i) append(prompt);
        struct Sequence {
            std::unique_ptr<LogitsProcessor> processor;
            Tokens tokens;
        };
        std::vector<Sequence> sequences(1);
        sequences[0] = {make_dry_multiplier(config, breaking_at(breakers, vocabulary)), prompt};
        if (random() % 2) sequences.push_back({sequences[0].processor->fork(), prompt});
        for (size_t step = 0; step < 12; ++step) {
            Sequence& one = sequences[random() % sequences.size()];
            ASSERT_EQ(penalties(*one.processor, one.tokens, prompt.size(), vocabulary.size()),
                      defined(config, one.tokens, breakers, vocabulary));
            if (random() % 4 == 0) {
                Sequence other{one.processor->fork(), one.tokens};
                append(other.tokens);
                sequences.push_back(std::move(other));
                continue;
            }
            for (size_t i = random() % 8 == 0 ? 3 : 1; i > 0; --i) append(one.tokens);
        }
    }
}

TEST(Dry, StaysFiniteHoweverLongTheRepetition) {
    const Logits found = penalties(dry(1.0f, 1000.0f), Tokens(5000, 3));
    EXPECT_GT(found[3], 1e37f);
    EXPECT_TRUE(std::isfinite(found[3]));
}

}  // namespace
}  // namespace pagewheel
