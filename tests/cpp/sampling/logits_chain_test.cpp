#include "sampling/logits_chain.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "sampling/repetitions.hpp"
#include "support/random_logits.hpp"

namespace pagewheel {
namespace {

using Tokens = std::vector<int64_t>;
using Logits = std::vector<float>;

constexpr float most = std::numeric_limits<float>::max();

/// Of a sequence's LogitsProcessor or LogitsChain.
template <class Processor>
Logits processed(Processor& processor, const Tokens& tokens, size_t prompt_length, Logits logits,
                 double offset = 0) {
    processor.process({logits.data(), logits.size(), offset}, {tokens, prompt_length});
    return logits;
}

TEST(TokenCounts, AreThoseOfTheWholeSequenceHoweverItGrows) {
    std::mt19937 random(1);
    for (int round = 0; round < 50; ++round) {
        TokenCounts counts;
        const size_t first = random() % 5;
        Tokens tokens(first);
        for (int step = 0; step < 20; ++step) {
            const size_t num_new = random() % 3 == 0 ? random() % 30 : 1;
            for (size_t i = 0; i < num_new; ++i) tokens.push_back(int64_t(random() % 40));
            counts.update(tokens, first);
            std::map<int64_t, size_t> expected;
            for (size_t i = first; i < tokens.size(); ++i) ++expected[tokens[i]];
            std::map<int64_t, size_t> found;
            for (const auto& [token, count] : counts) found[token] = count;
            ASSERT_EQ(found, expected);
        }
    }
}

TEST(TokenCounts, RefuseASequenceThatLostWhatWasCounted) {
    TokenCounts counts;
    counts.update({1, 2, 3}, 0);
    EXPECT_THROW(counts.update({1, 2}, 0), std::logic_error);
}

std::unique_ptr<LogitsProcessor> repetition_penalty(float penalty) {
    GenerationConfig config;
    config.repetition_penalty = penalty;
    return make_repetition_penalty(config);
}

TEST(RepetitionPenalty, DividesPositiveLogitsAndMultipliesNegativeOnesOncePerToken) {
    const auto penalty = repetition_penalty(2.0f);
    // Tokens 0, 1 and 2 occurred, in the prompt or after it; 9 has no logit.
    EXPECT_EQ(processed(*penalty, {0, 1, 0, 9, 2}, 2, {4.0f, -1.0f, 0.0f, 5.0f, -5.0f}),
              (Logits{2.0f, -2.0f, 0.0f, 5.0f, -5.0f}));
    EXPECT_EQ(processed(*penalty, {0, 1, 0, 9, 2, 3}, 2, {4.0f, -1.0f, 0.0f, 5.0f, -5.0f}),
              (Logits{2.0f, -2.0f, 0.0f, 2.5f, -5.0f}));
}

TEST(RepetitionPenalty, MultipliesLogProbabilitiesWhereThereIsAnOffset) {
    const auto penalty = repetition_penalty(2.0f);
    // Log-probabilities -1, -6 and -3.
    EXPECT_EQ(processed(*penalty, {0, 1}, 1, {4.0f, -1.0f, 2.0f}, 5.0),
              (Logits{3.0f, -7.0f, 2.0f}));
}

TEST(RepetitionPenalty, KeepsWhatIsFiniteFiniteAndTheRestAsItIs) {
    for (const float extreme : {1e-45f, most})
        for (const double offset : {0.0, 3.0}) {
            const auto penalty = repetition_penalty(extreme);
            const Logits row =
                processed(*penalty, {0, 1, 2, 3}, 4, {10.0f, -10.0f, -inf, NAN}, offset);
            EXPECT_TRUE(std::isfinite(row[0]) && std::isfinite(row[1])) << extreme;
            EXPECT_EQ(row[2], -inf);
            EXPECT_TRUE(std::isnan(row[3]));
        }
}

TEST(OccurrencePenalty, SubtractsOnceAndPerOccurrenceOfGeneratedTokens) {
    GenerationConfig config;
    config.presence_penalty = 1.0f;
    config.frequency_penalty = 0.25f;
    const auto penalty = make_presence_penalty(config);
    // The prompt's token 2 is free, and so is a token that has no logit.
    EXPECT_EQ(processed(*penalty, {2, 0, 1, 0, 9}, 1, {4.0f, -1.0f, 3.0f}),
              (Logits{2.5f, -2.25f, 3.0f}));
    EXPECT_EQ(processed(*penalty, {2, 0, 1, 0, 9, 1}, 1, {4.0f, -1.0f, 3.0f}, 7.0),
              (Logits{2.5f, -2.5f, 3.0f}));
}

TEST(RepeatedNgrams, AreBanned) {
    const auto banned = [](const Tokens& tokens, size_t size) {
        GenerationConfig config;
        config.no_repeat_ngram_size = size;
        const auto processor = make_no_repeat_ngram_size(config);
        const Logits logits = processed(*processor, tokens, 2, Logits(6, 1.0f));
        Tokens ids;
        for (size_t i = 0; i < logits.size(); ++i)
            if (std::isinf(logits[i])) ids.push_back(int64_t(i));
        return ids;
    };
    const Tokens tokens{1, 2, 3, 1, 2, 4, 1, 2};
    EXPECT_EQ(banned(tokens, 1), (Tokens{1, 2, 3, 4}));
    EXPECT_EQ(banned(tokens, 2), (Tokens{3, 4}));
    EXPECT_EQ(banned(tokens, 3), (Tokens{3, 4}));
    EXPECT_EQ(banned(tokens, 4), Tokens());
    EXPECT_EQ(banned({5, 5, 5}, 3), Tokens{5});
    EXPECT_EQ(banned({5, 5}, 3), Tokens());
    EXPECT_EQ(banned({1000000, 3}, 1), Tokens{3});
    EXPECT_EQ(banned(tokens, GenerationConfig::unlimited - 1), Tokens());
}

/// Of sequences that grow by one token or some, and fork.
TEST(RepeatedNgrams, AreThoseThatASearchThroughTheWholeFinds) {
    std::mt19937 random(3);
    for (int round = 0; round < 2000; ++round) {
        const size_t vocabulary = 1 + random() % 4;
        GenerationConfig config;
        config.no_repeat_ngram_size = 1 + random() % 6;
        const auto append = [&](Tokens& tokens) {
            tokens.push_back(int64_t(random() % vocabulary));
        };
        Tokens prompt;
        for (size_t i = 1 + random() % 12; i > 0; --i) append(prompt);
        std::vector<std::pair<std::unique_ptr<LogitsProcessor>, Tokens>> sequences;
        sequences.emplace_back(make_no_repeat_ngram_size(config), prompt);
        sequences.emplace_back(sequences[0].first->fork(), prompt);
        for (size_t step = 0; step < 12; ++step) {
            auto& [processor, tokens] = sequences[random() % sequences.size()];
            Logits expected(vocabulary, 1.0f);
            const auto before = ptrdiff_t(config.no_repeat_ngram_size - 1);
            for (ptrdiff_t at = before; at < ptrdiff_t(tokens.size()); ++at)
                if (std::equal(tokens.end() - before, tokens.end(), tokens.begin() + at - before))
                    expected[size_t(tokens[size_t(at)])] = -inf;
            ASSERT_EQ(processed(*processor, tokens, prompt.size(), Logits(vocabulary, 1.0f)),
                      expected);
            if (random() % 4 == 0) {
                auto fork = processor->fork();
                Tokens other = tokens;
                append(other);
                sequences.emplace_back(std::move(fork), std::move(other));
                continue;
            }
            for (size_t i = random() % 8 == 0 ? 3 : 1; i > 0; --i) append(tokens);
        }
    }
}

TEST(RepeatedNgrams, AreFoundAmongTheDifferentTokensThatFollowedHoweverOftenTheyDid) {
    constexpr size_t size = 3500, prompt_length = 50000;
    GramFollowers followers(size);
    Tokens tokens(prompt_length, 7), found;
    tokens[10] = 8;
    followers.read(tokens, tokens.size());
    followers.seal();
    for (size_t step = 0; step < 2000; ++step) {
        followers.find(found);
        ASSERT_EQ(found, Tokens{7});
        tokens.push_back(7);
        followers.read(tokens, tokens.size());
    }
    // Those of an own sequence come at most as often as they are not sorted yet.
    GramFollowers unsealed(2);
    Tokens own;
    for (size_t step = 0; step < 20000; ++step) {
        own.push_back(7);
        unsealed.read(own, own.size());
        unsealed.find(found);
        ASSERT_LE(found.size(), 257u);
        if (step >= 2) {
            ASSERT_EQ(std::set<int64_t>(found.begin(), found.end()), std::set<int64_t>{7});
        }
    }
}

TEST(MinimumLength, BansStopTokensUntilEnoughTokensWereGenerated) {
    GenerationConfig config;
    config.min_new_tokens = 2;
    config.eos_token_id = 0;
    config.stop_token_ids = {2, 9};
    const auto processor = make_min_new_tokens(config);
    const Logits row{1.0f, 2.0f, 3.0f}, banned{-inf, 2.0f, -inf};
    EXPECT_EQ(processed(*processor, {5, 6, 7}, 3, row), banned);
    EXPECT_EQ(processed(*processor, {5, 6, 7, 1}, 3, row), banned);
    EXPECT_EQ(processed(*processor, {5, 6, 7, 1, 1}, 3, row), row);
}

size_t num_wanted(const GenerationConfig& config) {
    const auto& all = logits_processors();
    return size_t(std::count_if(all.begin(), all.end(), [&](const ProcessorKind& kind) {
        return kind.make(config, {}) != nullptr;
    }));
}

/// With nothing but the parameter set, to a value that is not its default.
GenerationConfig config_with(const std::string& parameter) {
    for (const char* value : {"2", "true", "[2]", "[\"text\"]", "\"text\"", "\"NEVER\"", "false",
                              "[[2]]", "{\"2\": 1}"}) {
        GenerationConfig config;
        try {
            config.update_from_json("{\"" + parameter + "\": " + value + "}");
        } catch (const std::runtime_error&) {
            continue;
        }
        return config;
    }
    throw std::logic_error("no value was found for " + parameter);
}

TEST(LogitsChain, HasAProcessorForEachParameterOfTheTableAndForNoOther) {
    // By the processors of presence_penalty and min_new_tokens.
    std::set<std::string> in_chain{"frequency_penalty", "min_tokens"};
    for (const ProcessorKind& kind : logits_processors())
        EXPECT_TRUE(in_chain.insert(kind.parameter).second) << kind.parameter << " is there twice";
    EXPECT_GT(generation_parameters().size(), 20u);
    for (const GenerationParameter& parameter : generation_parameters())
        EXPECT_EQ(num_wanted(config_with(parameter.name)), in_chain.erase(parameter.name))
            << parameter.name;
    EXPECT_EQ(in_chain, std::set<std::string>()) << "are no parameters of GenerationConfig";
}

TEST(LogitsChain, WhatTheTableCallsAPenaltyBansNoToken) {
    const Tokens history(6, 2);
    for (const ProcessorKind& kind : logits_processors()) {
        if (kind.bans) continue;
        const auto processor = kind.make(config_with(kind.parameter), {});
        for (const float logit : processed(*processor, history, 1, {1.0f, -1.0f, most, -most}))
            EXPECT_TRUE(std::isfinite(logit)) << kind.parameter;
    }
}

TEST(LogitsChain, EveryPenaltyHasAProcessor) {
    // The first two compare sequences and groups of them, and are beam search's; the last is
    // dry_multiplier's.
    const std::set<std::string> others{"diversity_penalty", "length_penalty", "dry_penalty_last_n"};
    for (const GenerationParameter& parameter : generation_parameters())
        if (parameter.name.find("penalty") != std::string::npos &&
            others.count(parameter.name) == 0) {
            EXPECT_EQ(num_wanted(config_with(parameter.name)), 1u) << parameter.name;
        }
}

TEST(LogitsChain, HasTransformersOrder) {
    std::vector<std::string> order;
    for (const ProcessorKind& kind : logits_processors()) order.push_back(kind.parameter);
    EXPECT_EQ(order,
              (std::vector<std::string>{"logit_bias", "repetition_penalty", "presence_penalty",
                                        "dry_multiplier", "no_repeat_ngram_size", "bad_words_ids",
                                        "min_new_tokens", "allowed_token_ids", "suppress_tokens"}));
}

TEST(LogitsChain, IsEmptyWhereNothingIsAskedFor) {
    GenerationConfig config;
    EXPECT_EQ(num_wanted(config), 0u);
    config.no_repeat_ngram_size = 0;
    EXPECT_EQ(num_wanted(config), 0u);
}

TEST(LogitsChain, AppliesTheRepetitionPenaltyBeforeTheOthers) {
    GenerationConfig config;
    config.repetition_penalty = 2.0f;
    config.presence_penalty = 1.0f;
    config.no_repeat_ngram_size = 2;
    config.min_new_tokens = 4;
    config.eos_token_id = 3;
    config.stop_token_ids = {4};
    LogitsChain chain(config);
    // Token 1 followed the last token before: banned. 3 and 4 stop.
    EXPECT_EQ(processed(chain, {2, 0, 1, 0}, 1, {4.0f, 4.0f, 4.0f, 4.0f, 4.0f, 4.0f}),
              (Logits{4.0f / 2 - 1, -inf, 4.0f / 2, -inf, -inf, 4.0f}));
}

TEST(LogitsChain, AForkGoesOnByItself) {
    GenerationConfig config;
    config.repetition_penalty = 2.0f;
    config.frequency_penalty = 1.0f;
    config.no_repeat_ngram_size = 4;
    config.min_new_tokens = 1;
    LogitsChain chain(config);
    const Logits row{8.0f, 8.0f, 8.0f};
    processed(chain, {0}, 0, row);
    LogitsChain fork = chain.fork();
    EXPECT_EQ(processed(chain, {0, 1}, 0, row), (Logits{3.0f, 3.0f, 8.0f}));
    EXPECT_EQ(processed(fork, {0, 2}, 0, row), (Logits{3.0f, 8.0f, 3.0f}));
    EXPECT_EQ(processed(chain, {0, 1, 1}, 0, row), (Logits{3.0f, 2.0f, 8.0f}));
}

}  // namespace
}  // namespace pagewheel
