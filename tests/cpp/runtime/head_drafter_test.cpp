// Drafts by a head of the model's: what it reads, and that it changes no answer. The scripted head
// checks in each run that every token in its cache has the right hidden state.
#include "runtime/head_drafter.hpp"

#include <algorithm>
#include <chrono>
#include <random>

#include "support/engine_fixture.hpp"
#include "support/soak.hpp"

namespace pagewheel {
namespace {

/// The next token follows from the hidden state, as the model's and the head's are the same.
void score_by_state(float state, float* logits) {
    std::mt19937 random{unsigned(state)};
    for (size_t i = 0; i < ScriptedModel::words; ++i) logits[i] = float(random() % 1000) / 100;
}

class EngineWithHead : public EngineTest {
protected:
    /// Engine whose head is wrong in so many of its guesses.
    void make_with(const SchedulerConfig& config = scheduler(), unsigned percent_wrong = 0) {
        auto scripted = std::make_unique<ScriptedModel>();
        head = scripted.get();
        head->is_head = gives_states = true;
        head->score = [this, percent_wrong, random = std::mt19937(3)](const Tokens&, size_t,
                                                                      float* logits) mutable {
            score_by_state(head->state, logits);
            if (random() % 100 < percent_wrong) logits[random() % ScriptedModel::words] = 50;
        };
        draft_model = std::move(scripted);
        make_model(config);
    }
    void make_without_head(const SchedulerConfig& config = scheduler()) {
        gives_states = false;
        make_model(config);
    }
    static GenerationConfig drafted(size_t count, size_t num_assistant_tokens) {
        GenerationConfig config = greedy(count);
        config.num_assistant_tokens = num_assistant_tokens;
        return config;
    }
    StepStatistics sums() const { return engine->statistics().all_steps; }

    ScriptedModel* head = nullptr;

private:
    void make_model(const SchedulerConfig& config) {
        make(config);
        model->score = [this](const Tokens&, size_t, float* logits) {
            score_by_state(model->state, logits);
        };
    }
};

TEST_F(EngineWithHead, EveryDraftOfAChainIsRightWhereTheHeadIs) {
    for (const size_t size : {1, 7, 150}) {
        SchedulerConfig config = scheduler();
        config.max_num_batched_tokens = 40;
        make_with(config);
        size_t tokens = 0, given_back = 0;
        head->before_run = [&](const Batch& batch) { tokens += batch.num_tokens; };
        head->when_memory_is_unused = [&] { ++given_back; };
        submit(Tokens(size, 3), drafted(17, 3));
        finish();
        EXPECT_EQ(sums().num_accepted_tokens, 12u);
        EXPECT_EQ(sums().num_drafted_tokens, 12u);
        EXPECT_EQ(engine->statistics().num_steps, (size + 39) / 40 + 4);
        // The prompt but for its first token, four tokens of each step but the last, two drafts.
        EXPECT_EQ(tokens, size + 3 * 4 + 4 * 2);
        EXPECT_GT(given_back, 0u);
    }
}

TEST_F(EngineWithHead, WrongDraftsAreReadAgainAsWhatCameInstead) {
    for (const size_t states : {0, 1}) {
        blocks_per_state = states;
        make_with(scheduler(), 20);
        const GenerationHandle drafts = submit({1, 2, 3}, drafted(60, 4));
        finish();
        EXPECT_GT(sums().num_accepted_tokens, 30u);
        EXPECT_GT(sums().num_drafted_tokens, sums().num_accepted_tokens + 9);
        make_without_head();
        const GenerationHandle plain = submit({1, 2, 3}, greedy(60));
        finish();
        EXPECT_EQ(generated(drafts), generated(plain));
    }
}

/// A row of a mixture's step reads experts of its own, the head multiplies an output matrix, and
/// the layers keep states. All times are given: a step without drafts takes 1000 microseconds.
class EngineWithSlowHead : public EngineWithHead {
protected:
    void make_with(size_t row_time, size_t head_time) {
        blocks_per_state = 1;
        EngineWithHead::make_with();
        model->before_run = [this, row_time](const Batch& batch) {
            now += std::chrono::microseconds(1000 + row_time * (batch.num_tokens - 1));
        };
        head->score = [this, random = std::mt19937(3)](const Tokens&, size_t,
                                                       float* logits) mutable {
            score_by_state(head->state, logits);
            auto best = std::max_element(logits, logits + ScriptedModel::words) - logits;
            if (random() % 100 >= percent_right) best = random() % ScriptedModel::words;
            logits[best] = 50;  // nothing tells wrong ones from others
        };
        head->before_run = [this, head_time](const Batch& batch) {
            const bool is_asked = batch.entries[0].num_logits > 0;
            now += std::chrono::microseconds(is_asked * head_time + 20 * batch.num_tokens);
        };
    }
    /// Of so many answers of 120 tokens, as a share of what they take without drafts.
    double time_of(int64_t count) {
        const Clock::time_point begin = now;
        for (int64_t i = 1; i <= count; ++i) {
            GenerationConfig config = greedy(120);
            config.cache_salt = std::to_string(++num_answers);  // no answer repeats another
            submit({i}, config);
            finish();
        }
        return std::chrono::duration<double, std::milli>(now - begin).count() / double(count * 120);
    }
    double time_of(int64_t count, unsigned percent, size_t row_time, size_t head_time) {
        percent_right = percent;
        make_with(row_time, head_time);
        return time_of(count);
    }

    unsigned percent_right = 0;
    size_t num_answers = 0;
};

TEST_F(EngineWithSlowHead, DraftsTakeNoLongerThanTheyAreWorth) {
    for (const unsigned percent : {0, 30, 50, 60, 65, 70})
        EXPECT_LT(time_of(8, percent, 250, 280), 1.02) << percent;
    EXPECT_LT(time_of(8, 90, 250, 280), 1 / 1.2);
    EXPECT_LT(time_of(8, 70, 50, 100), 1 / 1.4);
    EXPECT_LT(time_of(8, 0, 50, 1500), 1.02);
}

TEST_F(EngineWithSlowHead, TheFirstAnswerTakesLittleLongerWhileTheHeadIsNotKnown) {
    for (const unsigned percent : {0, 10, 30})
        EXPECT_LT(time_of(1, percent, 50, 280), 1.03) << percent;
    EXPECT_LT(time_of(1, 90, 50, 280), 1 / 1.4);
}

TEST_F(EngineWithSlowHead, AHeadThatBecomesRightIsFoundWhileAWrongOneTakesOneHundredth) {
    time_of(8, 0, 50, 280);
    EXPECT_LT(time_of(8), 1.01);
    percent_right = 95;
    time_of(10);
    EXPECT_LT(time_of(8), 1 / 1.4);
}

TEST_F(EngineWithHead, WhatNobodyDraftsFromIsReadManyTokensAtATime) {
    SchedulerConfig config = scheduler();
    config.num_kv_blocks = 128;
    make_with(config);
    model->before_run = [this](const Batch&) { now += std::chrono::microseconds(1000); };
    size_t runs = 0;
    head->before_run = [&](const Batch& batch) {
        now += std::chrono::milliseconds(9);
        runs += batch.entries[0].num_logits == 0;
    };
    submit({1}, greedy(400));
    finish();
    EXPECT_LT(sums().num_drafted_tokens, 12u);
    EXPECT_GE(runs, 2u);
    EXPECT_LE(runs, 400u / 128);
}

TEST_F(EngineWithHead, BehindACachedPrefixTheHeadBeginsLater) {
    SchedulerConfig config = scheduler();
    config.enable_prefix_caching = true;
    make_with(config);
    Tokens prompt(30, 5);
    submit(prompt, drafted(9, 2));
    finish();
    const size_t accepted = sums().num_accepted_tokens;
    size_t most = 0;
    head->before_run = [&](const Batch& batch) {
        most = std::max(most, batch.entries[0].sequence->tokens.size());
    };
    submit(prompt, drafted(9, 2));
    finish();
    EXPECT_EQ(sums().num_accepted_tokens, 2 * accepted);
    EXPECT_LT(most, 20u);
}

TEST_F(EngineWithHead, AFailureEndsTheRequestsThatWereDraftedForAndNoOther) {
    make_with();
    bool fails = true;
    head->before_run = [&](const Batch&) {
        if (fails) throw std::runtime_error("no memory");
    };
    const GenerationHandle bad = submit({1}, drafted(9, 2));
    finish();
    expect_told(bad, "the drafter failed: no memory");
    const GenerationHandle longer = submit(Tokens(140, 1), drafted(9, 2));  // its prompt is read
    EXPECT_THROW(finish(), std::runtime_error);
    expect_told(longer, "a step failed: no memory");
    finish();
    fails = false;
    const GenerationHandle good = submit({1}, drafted(9, 2));
    finish();
    EXPECT_EQ(generated(good).size(), 9u);
    EXPECT_EQ(sums().num_drafted_tokens, sums().num_accepted_tokens);
}

TEST_F(EngineWithHead, AnotherModelsHeadIsRefused) {
    auto scripted = std::make_unique<ScriptedModel>();
    scripted->is_head = true;
    draft_model = std::move(scripted);
    EXPECT_THROW(make(), InvalidArgument);
}

TEST_F(EngineWithHead, FiveHundredRandomRequestsAreAnsweredAsWithoutDrafts) {
    SchedulerConfig config = scheduler();
    config.enable_prefix_caching = true;
    config.num_kv_blocks = 40;
    config.max_num_batched_tokens = 40;
    for (const size_t states : {0, 1}) {
        blocks_per_state = states;
        make_without_head(config);
        const auto expected = soak(*engine, 500, false);
        EXPECT_GT(engine->statistics().num_preemptions, 20u);
        for (const unsigned percent_wrong : {0, 30}) {
            make_with(config, percent_wrong);
            const auto answers = soak(*engine, 500, true);
            EXPECT_GT(sums().num_drafted_tokens, 3000u);
            EXPECT_GT(sums().num_accepted_tokens, 1000u);
            EXPECT_EQ(engine->statistics().num_used_blocks, 0u);
            expect_same(answers, expected);
        }
    }
}

}  // namespace
}  // namespace pagewheel
