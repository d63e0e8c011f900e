// Many requests of all kinds, for tests that compare their answers.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "support/engine_fixture.hpp"

namespace pagewheel {

/// Samples and greedy answers of requests that share prefixes, are cancelled, have priorities, and
/// do not fit the caches together.
inline std::vector<GenerationOutput> soak(Engine& engine, size_t count, bool has_drafts) {
    std::mt19937 random(5);
    std::vector<GenerationHandle> handles;
    for (size_t i = 0; i < count; ++i) {
        GenerationConfig config;
        config.max_new_tokens = 1 + random() % 40;
        config.do_sample = i % 3 == 0;
        config.temperature = 0.3f;
        config.rng_seed = i;
        config.logprobs = i % 2;
        config.num_return_sequences = config.do_sample ? 1 + i % 3 : 1;
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
    std::vector<GenerationOutput> all;
    for (size_t i = 0; i < count; ++i)
        if (i % 10 != 5)
            for (const GenerationOutput& output : handles[i].outputs_so_far(true))
                all.push_back(output);
    return all;
}

inline void expect_same(const std::vector<GenerationOutput>& answers,
                        const std::vector<GenerationOutput>& expected) {
    ASSERT_EQ(answers.size(), expected.size());
    for (size_t i = 0; i < answers.size(); ++i) {
        ASSERT_EQ(answers[i].generated_ids, expected[i].generated_ids) << i;
        ASSERT_EQ(answers[i].generated_log_probs, expected[i].generated_log_probs) << i;
        ASSERT_EQ(answers[i].text, expected[i].text) << i;
        ASSERT_EQ(answers[i].finish_reason, expected[i].finish_reason) << i;
    }
}

}  // namespace pagewheel
