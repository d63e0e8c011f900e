// Many requests of all kinds, for tests that compare their answers.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "support/engine_fixture.hpp"

namespace pagewheel {

/// What comes depends on all tokens so far, so that a wrong one in a cache would be seen.
inline void score_by_all(const Tokens& tokens, size_t count, float* logits) {
    size_t hash = 1;
    for (size_t i = 0; i < count; ++i) hash = hash * 31 + size_t(tokens[i]);
    std::mt19937 random{unsigned(hash)};
    for (size_t i = 0; i < ScriptedModel::words; ++i) logits[i] = float(random() % 1000) / 100;
}

/// The outputs of each request; none of those that were cancelled.
using SoakAnswers = std::vector<std::vector<GenerationOutput>>;

/// Samples and greedy answers of requests that share prefixes, are cancelled, have priorities, and
/// do not fit the caches together.
inline SoakAnswers soak(Engine& engine, size_t count, bool has_drafts) {
    std::mt19937 random(5);
    std::vector<GenerationHandle> handles;
    for (size_t i = 0; i < count; ++i) {
        GenerationConfig config;
        config.max_new_tokens = 1 + random() % 40;
        config.do_sample = i % 3 == 0;
        config.temperature = 0.3f;
        config.rng_seed = i;
        config.logprobs = i % 2;
        config.num_return_sequences = config.do_sample ? 1 + i % 4 : 1;
        config.priority = int(i % 5 == 0);
        if (i % 7 == 0) config.stop_strings = {"ab", "jj"};
        const size_t num_drafts = random() % 8;
        if (has_drafts) config.num_assistant_tokens = num_drafts;
        Tokens prompt(1 + random() % 20, int64_t(i % 4));
        handles.emplace_back(engine.submit(std::nullopt, prompt, config));
        for (size_t k = random() % 3; k > 0; --k) engine.step();
        if (i % 10 == 9) handles[i - 4].cancel();
    }
    while (engine.has_work()) engine.step();
    SoakAnswers all(count);
    for (size_t i = 0; i < count; ++i)
        if (i % 10 != 5 && handles[i].get_status() != Status::CANCEL)
            all[i] = handles[i].outputs_so_far(true);
    return all;
}

inline void expect_same(const SoakAnswers& answers, const SoakAnswers& expected) {
    ASSERT_EQ(answers.size(), expected.size());
    for (size_t i = 0; i < answers.size(); ++i) {
        ASSERT_EQ(answers[i].size(), expected[i].size()) << i;
        for (size_t k = 0; k < answers[i].size(); ++k) {
            const GenerationOutput &answer = answers[i][k], &other = expected[i][k];
            ASSERT_EQ(answer.generated_ids, other.generated_ids) << i;
            ASSERT_EQ(answer.generated_log_probs, other.generated_log_probs) << i;
            ASSERT_EQ(answer.text, other.text) << i;
            ASSERT_EQ(answer.finish_reason, other.finish_reason) << i;
        }
    }
}

}  // namespace pagewheel
