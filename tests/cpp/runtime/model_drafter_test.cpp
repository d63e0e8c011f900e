// Drafts by a second model: how many there are, what they cost, and that they change no answer.
#include "runtime/model_drafter.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

#include "support/engine_fixture.hpp"
#include "support/soak.hpp"

namespace pagewheel {
namespace {

class EngineWithDraftModel : public EngineTest {
protected:
    /// Engine whose draft model says what `next` does.
    void make_with(const SchedulerConfig& config = scheduler()) {
        auto scripted = std::make_unique<ScriptedModel>();
        drafting = scripted.get();
        draft_model = std::move(scripted);
        make(config);
    }
    static GenerationConfig drafted(size_t count, size_t num_assistant_tokens) {
        GenerationConfig config = greedy(count);
        config.num_assistant_tokens = num_assistant_tokens;
        return config;
    }
    StepStatistics sums() const { return engine->statistics().all_steps; }
    /// A run that takes so long by the engine's clock.
    auto taking(int microseconds) {
        return
            [this, microseconds](const Batch&) { now += std::chrono::microseconds(microseconds); };
    }

    ScriptedModel* drafting = nullptr;
};

TEST_F(EngineWithDraftModel, OneDraftStepServesAllSequencesAndReadsEachTokenOnce) {
    SchedulerConfig config = scheduler();
    config.max_num_batched_tokens = 64;
    make_with(config);
    size_t runs = 0, tokens = 0;
    drafting->before_run = [&](const Batch& batch) {
        ++runs;
        tokens += batch.num_tokens;
    };
    const GenerationHandle first = submit({1, 2, 3}, drafted(13, 3));
    const GenerationHandle second = submit({40, 41, 42, 43}, drafted(13, 3));
    finish();
    EXPECT_EQ(generated(first), (Tokens{4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}));
    EXPECT_EQ(generated(second).back(), 56);
    EXPECT_EQ(engine->statistics().num_steps, 1u + 3u);
    EXPECT_EQ(sums().num_accepted_tokens, 18u);
    EXPECT_EQ(runs, 9u);
    // The prompts and what was generated, but for the last draft and the two tokens after it.
    EXPECT_EQ(tokens, 3u + 4u + 2u * 11u);
    EXPECT_EQ(num_free(), num_blocks);
}

TEST_F(EngineWithDraftModel, WrongDraftsAreRolledBackInBothCaches) {
    make_with();
    drafting->next = [](int64_t token) { return token % 3 == 0 ? token : token + 1; };
    const GenerationHandle handle = submit({1}, drafted(30, 4));
    finish();  // scripted models check that each slot has its token
    Tokens expected;
    for (int64_t token = 2; token < 32; ++token) expected.push_back(token);
    EXPECT_EQ(generated(handle), expected);
    EXPECT_GT(sums().num_accepted_tokens, 10u);
    EXPECT_GT(sums().num_drafted_tokens, sums().num_accepted_tokens);
}

TEST_F(EngineWithDraftModel, AnotherVocabularyIsReadAndDraftedByItsBytes) {
    // Of every fifth token the draft model has the characters alone; it has one for two tokens.
    const auto text_of = [](int64_t token) {
        return concat('<', char('0' + token / 10), char('0' + token % 10), '>');
    };
    std::vector<std::string> ours, theirs{"<", ">", "<07><08>"};
    for (char digit = '0'; digit <= '9'; ++digit) theirs.emplace_back(1, digit);
    for (int64_t token = 0; token < int64_t(ScriptedModel::words); ++token) {
        ours.push_back(text_of(token));
        if (token % 5 != 0) theirs.push_back(text_of(token));
    }
    vocabulary_maps = std::make_shared<VocabularyMaps>(ours, theirs);
    SchedulerConfig config = scheduler();
    for (const size_t blocks : {64, 12}) {  // of two, one is preempted
        config.num_kv_blocks = blocks;
        make_with(config);
        drafting->score = [&](const Tokens& tokens, size_t count, float* logits) {
            std::string text;
            for (size_t i = 0; i < count; ++i) text += theirs[size_t(tokens[i])];
            ASSERT_EQ(text.back(), '>');
            const int64_t next = (std::stoll(text.substr(text.size() - 3)) + 1) % 100;
            const std::string said = next == 7       ? theirs[2]
                                     : next % 5 == 0 ? theirs[0]
                                                     : text_of(next);
            logits[std::find(theirs.begin(), theirs.end(), said) - theirs.begin()] = 10;
        };
        const GenerationHandle first = submit({1}, drafted(30, 3));
        const GenerationHandle second = submit({44}, drafted(30, 3));
        finish();
        for (int64_t i = 0; i < 30; ++i) {
            ASSERT_EQ(generated(first)[size_t(i)], 2 + i);
            ASSERT_EQ(generated(second)[size_t(i)], 45 + i);
        }
        EXPECT_GT(sums().num_accepted_tokens, 25u);
        EXPECT_EQ(sums().num_drafted_tokens, sums().num_accepted_tokens);
    }
    vocabulary_maps = nullptr;
}

TEST(TokenMap, WritesBytesInTheLongestTokensOfTheOther) {
    const std::string spaces(100, ' ');
    const TokenMap map({"abc", "abcd", "", "x", spaces,
                        "\xff"
                        "ab"},
                       {"a", "ab", "c", "abc", spaces});
    const auto written = [&](int64_t token) {
        Tokens tokens;
        map.append(token, tokens);
        return tokens;
    };
    EXPECT_EQ(written(0), (Tokens{3}));
    EXPECT_EQ(written(1), (Tokens{3}));  // nothing is known of d
    EXPECT_EQ(written(2), (Tokens{0}));
    EXPECT_EQ(written(3), (Tokens{0}));
    EXPECT_EQ(written(4), (Tokens{4}));
    EXPECT_EQ(written(5), (Tokens{1}));
    EXPECT_EQ(written(6), (Tokens{0}));
    EXPECT_EQ(map.first_of(1), 3);
    for (const int64_t token : {2, 3, 6}) EXPECT_EQ(map.first_of(token), -1);
}

TEST_F(EngineWithDraftModel, DraftsNothingWhereTheDraftModelIsTooSlow) {
    for (const int draft_time : {20, 2000}) {
        make_with();
        model->before_run = taking(1000);
        drafting->before_run = taking(draft_time);
        submit({1}, greedy(60));
        finish();
        if (draft_time < 1000) {
            EXPECT_GT(sums().num_accepted_tokens, 30u);
        } else {
            EXPECT_LT(sums().num_drafted_tokens, 6u);
        }
    }
}

TEST_F(EngineWithDraftModel, DraftsNothingWhereTheDraftModelIsWrong) {
    make_with();
    model->before_run = taking(500);
    drafting->before_run = taking(100);
    drafting->next = [](int64_t) { return 7; };
    submit({1}, greedy(95));
    finish();
    EXPECT_LT(sums().num_drafted_tokens, 20u);
    EXPECT_LT(sums().num_draft_steps, 25u);
}

TEST_F(EngineWithDraftModel, DraftsFewerWhereRightOnesAreComputedAgainAfterAWrongOne) {
    double lengths[2];
    for (const size_t states : {0, 1}) {
        blocks_per_state = states;
        make_with();
        model->before_run = [this](const Batch& batch) {
            now += std::chrono::microseconds(1000 + 300 * (batch.num_tokens - 1));
        };
        drafting->before_run = taking(20);
        drafting->next = [random = std::mt19937(3)](int64_t token) mutable {
            return random() % 10 < 2 ? 7 : (token + 1) % int64_t(ScriptedModel::words);
        };
        for (int i = 0; i < 8; ++i) {
            GenerationConfig config = greedy(90);
            config.cache_salt = std::to_string(i);  // nothing is repeated
            submit({1}, config);
            finish();
        }
        lengths[states] = double(sums().num_drafted_tokens) / engine->statistics().num_steps;
    }
    EXPECT_LT(lengths[1], lengths[0] - 0.2);
}

TEST_F(EngineWithDraftModel, DraftsAsLongAsItIsSureOfThem) {
    make_with();
    // It is not sure of what comes after each fourth token, and wrong then.
    drafting->score = [](const Tokens& tokens, size_t count, float* logits) {
        const int64_t last = tokens[count - 1];
        if (last % 4 == 0)
            logits[7] = 0.1f;
        else
            logits[(last + 1) % int64_t(ScriptedModel::words)] = 12;
    };
    GenerationConfig config = greedy(150);
    config.assistant_confidence_threshold = 0.4f;
    submit({1}, config);
    finish();
    EXPECT_GT(sums().num_accepted_tokens, 90u);
    EXPECT_LT(sums().num_drafted_tokens - sums().num_accepted_tokens, 12u);
}

TEST_F(EngineWithDraftModel, WhatIsRepeatedIsNotComputedAgain) {
    make_with();
    model->before_run = taking(500);
    drafting->before_run = taking(200);
    drafting->next = [](int64_t token) { return token % 2 == 0 ? token + 1 : 7; };
    size_t steps = 0;
    for (int i = 0; i < 2; ++i) {
        const size_t before = sums().num_draft_steps;
        submit({1}, greedy(90));
        finish();
        steps = sums().num_draft_steps - before;
    }
    EXPECT_GT(sums().num_accepted_tokens, 70u);
    EXPECT_LT(steps, 30u);
}

TEST_F(EngineWithDraftModel, AFailureEndsTheRequestsThatWereDraftedForAndNoOther) {
    make_with();
    bool fails = true;
    drafting->before_run = [&](const Batch&) {
        if (fails) throw std::runtime_error("no memory");
    };
    const GenerationHandle bad = submit({1}, drafted(9, 2));
    finish();
    EXPECT_EQ(bad.get_status(), Status::CANCEL);
    expect_told(bad, "the drafter failed: no memory");
    fails = false;
    const GenerationHandle good = submit({1}, drafted(9, 2));
    finish();
    EXPECT_EQ(generated(good), (Tokens{2, 3, 4, 5, 6, 7, 8, 9, 10}));
    EXPECT_EQ(sums().num_accepted_tokens, 5u);
}

TEST_F(EngineWithDraftModel, LogitsThatAreNoNumbersEndNoRequest) {
    make_with();
    drafting->score = [](const Tokens& tokens, size_t count, float* logits) {
        const bool is_bad = tokens[0] == 1;
        logits[size_t(tokens[count - 1] + 1)] = is_bad ? std::nanf("") : 10.0f;
    };
    const GenerationHandle bad = submit({1}, drafted(9, 2));
    const GenerationHandle good = submit({41}, drafted(9, 2));
    finish();
    EXPECT_EQ(generated(bad), (Tokens{2, 3, 4, 5, 6, 7, 8, 9, 10}));
    EXPECT_EQ(generated(good), (Tokens{42, 43, 44, 45, 46, 47, 48, 49, 50}));
    EXPECT_EQ(sums().num_accepted_tokens, 5u);
}

TEST_F(EngineWithDraftModel, WhatEndsBeyondTheDraftModelsContextGoesOnWithoutDrafts) {
    draft_context_length = 20;
    make_with();
    const GenerationHandle handle = submit({1}, drafted(40, 3));
    finish();
    EXPECT_EQ(generated(handle).size(), 40u);
    EXPECT_GT(sums().num_drafted_tokens, 10u);
    EXPECT_LE(sums().num_drafted_tokens, 20u);
}

TEST_F(EngineWithDraftModel, ItsCacheIsInTheSameMemory) {
    SchedulerConfig config;
    config.cache_size = 32;  // blocks of 1 GB each
    make(config);
    EXPECT_EQ(engine->statistics().num_blocks, 32u);
    make_with(config);
    EXPECT_EQ(engine->statistics().num_blocks, 16u);
}

TEST_F(EngineWithDraftModel, FiveHundredRandomRequestsAreAnsweredAsWithoutDrafts) {
    SchedulerConfig config = scheduler();
    config.enable_prefix_caching = true;
    config.num_kv_blocks = 40;
    config.max_num_batched_tokens = 40;
    make(config);
    model->score = score_by_all;
    const auto expected = soak(*engine, 500, false);
    EXPECT_GT(engine->statistics().num_preemptions, 20u);
    EXPECT_EQ(sums().num_drafted_tokens, 0u);
    for (const unsigned percent_wrong : {0, 30, 100}) {
        make_with(config);
        model->score = score_by_all;
        drafting->score = [&, random = std::mt19937(3)](const Tokens& tokens, size_t count,
                                                        float* logits) mutable {
            if (random() % 100 < percent_wrong)
                logits[random() % ScriptedModel::words] = 5;
            else
                score_by_all(tokens, count, logits);
        };
        const auto answers = soak(*engine, 500, true);
        EXPECT_GT(sums().num_drafted_tokens, 3000u);
        EXPECT_GT(sums().num_accepted_tokens, percent_wrong < 100 ? 500u : 0u);
        EXPECT_EQ(engine->statistics().num_used_blocks, 0u);
        expect_same(answers, expected);
    }
}

}  // namespace
}  // namespace pagewheel
