// Several tokens per step: drafts change no answer.
#include "support/engine_fixture.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <random>

#include "support/random_logits.hpp"
#include "support/sampling_reference.hpp"
#include "support/soak.hpp"

namespace pagewheel {
namespace {

using EngineDrafts = EngineTest;
class EngineDraftsWithStates : public EngineTest, public testing::WithParamInterface<size_t> {};

/// Says what comes as the script does, but is wrong now and then.
class ScriptedDrafter final : public Drafter {
public:
    using Next = std::function<int64_t(const Tokens&)>;

    ScriptedDrafter(Next next, size_t count, size_t percent_wrong)
        : m_next(std::move(next)), m_count(count), m_percent_wrong(percent_wrong) {}

    void propose(SequenceState& sequence, size_t most, std::vector<Draft>& drafts) override {
        const Tokens& tokens = sequence.tokens;
        Tokens all = tokens;
        for (size_t i = 0; i < std::min(m_count, most); ++i) {
            const bool is_wrong = m_random() % 100 < m_percent_wrong;
            all.push_back(is_wrong ? int64_t(m_random() % ScriptedModel::words) : m_next(all));
            drafts.push_back({all.back()});
        }
    }

private:
    Next m_next;
    size_t m_count, m_percent_wrong;
    std::mt19937 m_random{7};
};

/// The one that follows in score_by_all().
int64_t likeliest(const Tokens& tokens) {
    std::vector<float> logits(ScriptedModel::words);
    score_by_all(tokens, tokens.size(), logits.data());
    return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

int64_t successor(const Tokens& tokens) {
    return (tokens.back() + 1) % int64_t(ScriptedModel::words);
}

TEST_F(EngineDrafts, DraftsThatAreRightGiveSeveralTokensPerStep) {
    drafter = std::make_unique<ScriptedDrafter>(successor, 3, 0);
    make();
    size_t num_runs = 0, most_rows = 0;
    model->before_run = [&](const Batch& batch) {
        ++num_runs;
        most_rows = std::max(most_rows, batch.entries.at(0).num_sampled);
    };
    const GenerationHandle handle = submit({1}, greedy(13));
    finish();
    EXPECT_EQ(generated(handle), (Tokens{2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}));
    EXPECT_EQ(most_rows, 4u);
    EXPECT_EQ(num_runs, 1u + 3u);  // the prompt's token, then four in each
    EXPECT_EQ(num_free(), num_blocks);
}

TEST_F(EngineDrafts, DraftsTakeNoTurnFromOtherSequences) {
    for (const bool has_drafts : {false, true}) {
        // All are wrong, and as many as a step has tokens.
        if (has_drafts)
            drafter = std::make_unique<ScriptedDrafter>(
                [](const Tokens& tokens) { return (tokens.back() + 50) % 100; }, 7, 0);
        make();
        const GenerationHandle first = submit({1}, greedy(40)), second = submit({2}, greedy(40));
        const GenerationHandle prompt = submit(Tokens(12, 3), greedy(1));
        for (size_t i = 0; i < 10; ++i) engine->step();
        EXPECT_EQ(generated(first).size(), 10u) << has_drafts;
        EXPECT_EQ(generated(second).size(), 10u) << has_drafts;
        EXPECT_EQ(prompt.get_status(), Status::FINISHED) << has_drafts;
    }
}

/// Seeded samples, greedy answers and stop strings of requests that share prefixes in a cache that
/// is too small for all of them.
std::vector<GenerationOutput> answers(Engine& engine, size_t num_assistant_tokens = 0) {
    std::mt19937 random(3);
    std::vector<GenerationHandle> handles;
    for (size_t i = 0; i < 40; ++i) {
        GenerationConfig config;
        config.max_new_tokens = 1 + random() % 30;
        config.num_assistant_tokens = num_assistant_tokens;
        config.do_sample = i % 3 == 0;
        config.rng_seed = i;
        config.repetition_penalty = i % 4 == 0 ? 1.3f : 1.0f;
        config.no_repeat_ngram_size = i % 5 == 0 ? 2 : GenerationConfig::unlimited;
        config.logprobs = i % 2;
        config.mirostat = i % 6 == 0 ? 2 : 0;
        config.num_return_sequences = config.do_sample ? 1 + i % 4 : 1;
        if (i % 7 == 0) config.stop_strings = {"ab", "jj"};
        if (i % 11 == 0) config.stop_token_ids = {17, 40};
        Tokens prompt(1 + random() % 20, int64_t(i % 4));
        handles.emplace_back(engine.submit(std::nullopt, prompt, config));
        for (size_t k = random() % 3; k > 0; --k) engine.step();
    }
    while (engine.has_work()) engine.step();
    std::vector<GenerationOutput> all;
    for (const GenerationHandle& handle : handles)
        for (const GenerationOutput& output : handle.outputs_so_far(true)) all.push_back(output);
    return all;
}

/// A model with states throws them away where a draft was wrong, and computes the rest again.
TEST_P(EngineDraftsWithStates, AnswersAreTheSameWithAnyDrafts) {
    blocks_per_state = GetParam();
    SchedulerConfig config = scheduler();
    config.enable_prefix_caching = true;
    config.num_kv_blocks = 30 + 6 * blocks_per_state;
    config.max_num_batched_tokens = 20;
    const auto run = [&](size_t num_assistant_tokens, size_t num_drafts, size_t percent_wrong) {
        if (num_assistant_tokens > 0)
            drafter = std::make_unique<ScriptedDrafter>(likeliest, num_drafts, percent_wrong);
        make(config);
        model->score = score_by_all;
        std::vector<GenerationOutput> all = answers(*engine, num_assistant_tokens);
        EXPECT_EQ(engine->statistics().num_used_blocks, 0u);
        return all;
    };
    const std::vector<GenerationOutput> expected = run(0, 0, 0);
    const size_t num_preemptions = engine->statistics().num_preemptions;
    EXPECT_GT(num_preemptions, 0u);
    // Random, always right and silent ones are among them.
    for (const auto& [num_drafts, percent_wrong] :
         {std::pair<size_t, size_t>{1, 30}, {3, 30}, {7, 60}, {5, 100}, {12, 5}, {6, 0}, {0, 0}}) {
        const std::vector<GenerationOutput> drafted =
            run(std::max<size_t>(1, num_drafts), num_drafts, percent_wrong);
        ASSERT_EQ(drafted.size(), expected.size());
        for (size_t i = 0; i < drafted.size(); ++i) {
            EXPECT_EQ(drafted[i].generated_ids, expected[i].generated_ids) << i;
            EXPECT_EQ(drafted[i].generated_log_probs, expected[i].generated_log_probs) << i;
            EXPECT_EQ(drafted[i].text, expected[i].text) << i;
            EXPECT_EQ(drafted[i].finish_reason, expected[i].finish_reason) << i;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(, EngineDraftsWithStates, testing::Values(0, 2));

/// Each kind of drafter beside the model's answers without; those of prompts of threes may fail.
TEST_F(EngineDrafts, FiveHundredRandomRequestsAreAnsweredAlikeWhateverTheDrafterDoes) {
    SchedulerConfig config = scheduler();
    config.enable_prefix_caching = true;
    config.num_kv_blocks = 40;
    config.max_num_batched_tokens = 40;
    const int64_t never = ScriptedModel::words - 1;
    const auto run = [&](std::unique_ptr<Drafter> made) {
        const bool has_drafts = made != nullptr;
        drafter = std::move(made);
        make(config);
        model->score = [&](const Tokens& tokens, size_t count, float* logits) {
            score_by_all(tokens, count, logits);
            logits[never] = -inf;
        };
        SoakAnswers all = soak(*engine, 500, has_drafts);
        EXPECT_EQ(engine->statistics().num_used_blocks, 0u);
        return all;
    };
    const auto fails = [](const Tokens& tokens) {
        return tokens.front() == 3 && tokens.size() % 7 == 0;
    };
    const SoakAnswers expected = run(nullptr);
    EXPECT_GT(engine->statistics().num_preemptions, 20u);
    const struct {
        const char* name;
        ScriptedDrafter::Next next;
        size_t num_drafts, percent_wrong;
        double least_right, most_right;  // shares of its drafts: samples differ from the likeliest
        bool may_fail = false;
    } kinds[] = {
        {"always right", likeliest, 7, 0, 0.2, 1},
        {"always wrong", [&](const Tokens&) { return never; }, 7, 0, 0, 0},
        {"random", likeliest, 7, 100, 0.001, 0.05},
        {"silent", likeliest, 0, 0, 0, 0},
        {"slow",
         [&](const Tokens& tokens) {
             now += std::chrono::seconds(1);
             return likeliest(tokens);
         },
         7, 30, 0.1, 1},
        {"throwing",
         [&](const Tokens& tokens) {
             if (fails(tokens)) throw std::runtime_error("no idea");
             return likeliest(tokens);
         },
         7, 0, 0.2, 1, true},
        {"beyond the vocabulary",
         [&](const Tokens& tokens) {
             return fails(tokens) ? int64_t(ScriptedModel::words) : likeliest(tokens);
         },
         7, 0, 0.2, 1, true},
    };
    for (const auto& kind : kinds) {
        SCOPED_TRACE(kind.name);
        const SoakAnswers answers =
            run(std::make_unique<ScriptedDrafter>(kind.next, kind.num_drafts, kind.percent_wrong));
        const StepStatistics sums = engine->statistics().all_steps;
        const auto drafted = double(sums.num_drafted_tokens);
        EXPECT_EQ(drafted > 3000, kind.num_drafts > 0);
        EXPECT_GE(double(sums.num_accepted_tokens), kind.least_right * drafted);
        EXPECT_LE(double(sums.num_accepted_tokens), kind.most_right * drafted);
        SoakAnswers others = expected;
        size_t num_failed = 0;
        for (size_t i = 3; kind.may_fail && i < answers.size(); i += 4)
            if (answers[i].empty() && !others[i].empty()) {
                others[i].clear();
                ++num_failed;
            }
        EXPECT_EQ(num_failed > 50, kind.may_fail);
        expect_same(answers, others);
    }
}

TEST_F(EngineDrafts, TokensAreDrawnAsOftenAsWithoutDrafts) {
    const std::vector<float> row = random_logits(ScriptedModel::words, 5, 2.0f);
    const auto best = int64_t(std::max_element(row.begin(), row.end()) - row.begin());
    SchedulerConfig scheduling = scheduler();
    scheduling.max_num_batched_tokens = 256;
    for (const char* json :
         {R"({})", R"({"temperature": 0.5})", R"({"top_k": 7})", R"({"top_p": 0.8})",
          R"({"min_p": 0.05})", R"({"typical_p": 0.7})", R"({"top_n_sigma": 1.5})",
          R"({"xtc_probability": 0.3, "xtc_threshold": 0.05})"}) {
        drafter = std::make_unique<ScriptedDrafter>([&](const Tokens&) { return best; }, 3, 50);
        make(scheduling);
        model->score = [&](const Tokens&, size_t, float* logits) {
            std::copy(row.begin(), row.end(), logits);
        };
        GenerationConfig config = greedy(100);
        config.update_from_json(json);
        config.do_sample = true;
        std::vector<size_t> counts(ScriptedModel::words);
        for (size_t i = 0; i < draws(100); ++i) {
            std::vector<GenerationHandle> handles;
            for (size_t k = 0; k < 20; ++k) {
                config.rng_seed = i * 20 + k;
                handles.push_back(submit({1}, config));
            }
            finish();
            for (const GenerationHandle& handle : handles)
                for (const int64_t token : generated(handle)) ++counts[size_t(token)];
        }
        EXPECT_GT(engine->statistics().all_steps.num_accepted_tokens, draws(5000));
        const auto expected = expected_probabilities(config, row);
        EXPECT_LT(std::abs(chi_square_deviations(counts, expected)), 4.0) << json;
    }
}

TEST_F(EngineDrafts, ADrafterThatNamesNoTokenEndsItsRequestWithTheReason) {
    drafter = std::make_unique<ScriptedDrafter>(
        [](const Tokens& tokens) { return tokens.front() == 1 ? 1000 : successor(tokens); }, 2, 0);
    make();
    const GenerationHandle bad = submit({1}, greedy(9)), good = submit({2}, greedy(4));
    finish();
    EXPECT_EQ(bad.get_status(), Status::CANCEL);
    expect_told(bad, "the drafter failed");
    EXPECT_EQ(generated(good), (Tokens{3, 4, 5, 6}));
    EXPECT_EQ(num_free(), num_blocks);
}

}  // namespace
}  // namespace pagewheel
