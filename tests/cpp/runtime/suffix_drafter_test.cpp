// Drafts by repetition, and whether they are tried.
#include "runtime/suffix_drafter.hpp"

#include <algorithm>
#include <chrono>
#include <random>

#include "support/engine_fixture.hpp"

namespace pagewheel {
namespace {

size_t common_end(const Tokens& text, size_t end, const Tokens& tokens) {
    size_t length = 0;
    while (length < std::min(end, tokens.size()) &&
           text[end - 1 - length] == tokens[tokens.size() - 1 - length])
        ++length;
    return length;
}

TEST(SuffixIndex, FindsTheLongestEndsThatStoodBefore) {
    std::mt19937 random(5);
    size_t num_longest = 0, num_all = 0;
    for (const int64_t words : {2, 5, 60}) {
        SuffixIndex index;
        Tokens text;
        for (size_t i = 0; i < 400; ++i) {
            // A place of before is repeated now and then.
            if (i > 20 && random() % 8 == 0)
                for (size_t from = random() % (i - 12), k = 0; k < 10; ++k)
                    text.push_back(text[from + k]);
            text.push_back(int64_t(random() % size_t(words)));
            while (index.size() < text.size()) index.append(text[index.size()]);
            const SuffixIndex::Match match = index.find(text, 32);
            size_t longest = 0;
            for (size_t end = 1; end < text.size(); ++end)
                longest = std::max(longest, std::min<size_t>(32, common_end(text, end, text)));
            ASSERT_LT(match.end, text.size());
            ASSERT_LE(match.length, common_end(text, match.end, text));
            ASSERT_LE(match.length, longest);
            num_longest += words == 60 && match.length == longest;
            num_all += words == 60;
        }
    }
    EXPECT_GT(num_longest * 100, num_all * 90);  // hashes collide, and few places are looked at
}

TEST(SuffixIndex, KeepsTheLatestHalfOfWhatIsTooMuch) {
    SuffixIndex index(64);
    for (int64_t i = 0; i < 1000; ++i) index.append(i);
    EXPECT_LE(index.size(), 64u);
    EXPECT_EQ(index.find({10, 11, 12}, 32).length, 0u);
    const SuffixIndex::Match match = index.find({5, 990, 991, 992}, 32);
    EXPECT_EQ(match.length, 3u);
    EXPECT_EQ(index[match.end], 993);
}

TEST(StepTimes, LieBetweenWhatWasMeasured) {
    StepTimes times;
    for (int i = 0; i < 50; ++i) {
        times.record(1, 100);
        times.record(9, 300);
    }
    EXPECT_NEAR(times.of(9) / times.of(1), 3, 0.05);
    EXPECT_NEAR(times.of(5) / times.of(1), 2, 0.05);
    EXPECT_NEAR(times.of(5.5) / times.of(1), 2.125, 0.05);
    EXPECT_GT(times.of(10), times.of(9));
    for (int i = 0; i < 50; ++i) times.record(1, 200);  // all is slower now
    EXPECT_NEAR(times.of(9) / times.of(1), 3, 0.4);
}

TEST(StepTimes, OneDisturbedStepIsNotBelieved) {
    StepTimes times;
    const auto record = [&](size_t rows, double time) {
        for (int i = 0; i < 2; ++i) times.record(rows, time);  // the first one does not count
    };
    record(1, 100);
    record(3, 200);
    EXPECT_LT(times.of(3), 1.6);
    record(5, 110);
    for (const double rows : {2.0, 2.5, 3.0, 4.0}) EXPECT_LE(times.of(rows), times.of(5)) << rows;
}

class SpeculatingEngine : public EngineTest {
protected:
    static SchedulerConfig automatic() {
        SchedulerConfig config = scheduler();
        config.speculation = "auto";
        config.max_num_batched_tokens = 64;
        return config;
    }
    /// Each token follows from the two before it, so that texts run in circles.
    void make_circles() {
        model->score = [](const Tokens& tokens, size_t count, float* logits) {
            const auto hash = unsigned(tokens[count - 1] * 7 + (count > 1 ? tokens[count - 2] : 0));
            std::mt19937 random{hash};
            for (size_t i = 0; i < ScriptedModel::words; ++i)
                logits[i] = float(random() % 1000) / 100 + (i < 6 ? 8 : 0);
        };
    }
    StepStatistics sums() const { return engine->statistics().all_steps; }
    /// Each step takes as long, whatever its rows.
    void take_long() {
        model->before_run = [this](const Batch&) { now += std::chrono::microseconds(300); };
    }
};

TEST_F(SpeculatingEngine, SavesStepsWhereRowsCostLittle) {
    make(automatic());
    make_circles();
    take_long();
    submit({1}, greedy(240));
    finish();
    EXPECT_GT(sums().num_accepted_tokens, 150u);
    EXPECT_EQ(engine->statistics().num_steps, 240 - sums().num_accepted_tokens);
}

TEST_F(SpeculatingEngine, DraftsByDefaultForASequenceAlone) {
    SchedulerConfig config = automatic();
    config.speculation = SchedulerConfig().speculation;
    make(config);
    make_circles();
    take_long();
    GenerationConfig two = greedy(100);
    two.num_return_sequences = 2;
    two.do_sample = true;
    submit({1}, two);
    finish();
    EXPECT_EQ(sums().num_drafted_tokens, 0u);
    submit({1}, greedy(100));
    submit({2}, greedy(240));
    while (engine->statistics().num_running + engine->statistics().num_queued > 1) engine->step();
    EXPECT_EQ(sums().num_drafted_tokens, 0u);
    finish();
    EXPECT_GT(sums().num_accepted_tokens, 40u);
}

TEST_F(SpeculatingEngine, DraftsNothingThatDoesNotPay) {
    make(automatic());
    make_circles();
    model->before_run = [this](const Batch& batch) {
        now += std::chrono::microseconds(100) * batch.num_tokens * batch.num_tokens;
    };
    submit({1}, greedy(240));
    finish();
    EXPECT_LT(sums().num_drafted_tokens, 100u);
}

TEST_F(SpeculatingEngine, ANumberThatIsAskedForIsObeyedAlsoWhereItIsOff) {
    make();
    model->score = [](const Tokens& tokens, size_t count, float* logits) {
        std::fill(logits, logits + ScriptedModel::words, 0.0f);
        logits[(tokens[count - 1] + 1) % 4] = 1;
    };
    size_t most = 0;
    model->before_run = [&](const Batch& batch) { most = std::max(most, batch.num_tokens); };
    submit({0, 1, 2, 3, 0}, greedy(40));
    finish();
    EXPECT_EQ(most, 5u);  // the prompt
    GenerationConfig config = greedy(43);
    config.num_assistant_tokens = 6;
    const GenerationHandle handle = submit({0, 1, 2, 3, 0}, config);
    finish();
    EXPECT_EQ(most, 7u);
    EXPECT_EQ(sums().num_drafted_tokens, 36u);
    EXPECT_EQ(sums().num_accepted_tokens, 36u);
    EXPECT_EQ(generated(handle).size(), 43u);
}

TEST_F(SpeculatingEngine, AnswersOfTheSameSaltAloneAreDraftedFrom) {
    make(automatic());
    model->score = [](const Tokens& tokens, size_t count, float* logits) {
        std::fill(logits, logits + ScriptedModel::words, 0.0f);
        logits[(tokens[count - 1] + 1) % int64_t(ScriptedModel::words)] = 1;
    };
    take_long();
    const auto accepted_with = [&](const std::string& salt) {
        const size_t before = sums().num_accepted_tokens;
        GenerationConfig config = greedy(60);
        config.cache_salt = salt;
        submit({1}, config);
        finish();
        return sums().num_accepted_tokens - before;
    };
    EXPECT_EQ(accepted_with("a"), 0u);  // nothing is repeated
    EXPECT_EQ(accepted_with("b"), 0u);
    EXPECT_GT(accepted_with("a"), 30u);
}

TEST_F(SpeculatingEngine, APredictedTextIsDraftedFrom) {
    EngineParts parts;
    auto scripted = std::make_unique<ScriptedModel>();
    scripted->score = [](const Tokens& tokens, size_t count, float* logits) {
        std::fill(logits, logits + ScriptedModel::words, 0.0f);
        logits[(tokens[count - 1] + 1) % int64_t(ScriptedModel::words)] = 1;
    };
    parts.model = std::move(scripted);
    parts.context_length = 1000;
    parts.decoders = {letters, letters, [](int64_t token) { return letters({token}); }};
    parts.encode = [](const std::string& text) {
        Tokens tokens;
        for (const char c : text) tokens.push_back(c - 'a');
        return tokens;
    };
    engine = std::make_shared<Engine>(std::move(parts), scheduler());
    GenerationConfig config = greedy(16);
    config.num_assistant_tokens = 3;
    config.prediction = "bcdefghijklmnopqr";
    const GenerationHandle handle = submit({0}, config);
    finish();
    EXPECT_EQ(generated(handle), (Tokens{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}));
    EXPECT_EQ(sums().num_accepted_tokens, 11u);  // in 15 tokens after the first, one in four
}

TEST_F(SpeculatingEngine, BeamsHaveNoDraftsAndANumberOfThemIsRefused) {
    make(automatic());
    make_circles();
    GenerationConfig config = greedy(40);
    config.num_beams = 3;
    submit({1}, config);
    finish();
    EXPECT_EQ(sums().num_drafted_tokens, 0u);
    config.num_assistant_tokens = 3;
    EXPECT_THROW(submit({1}, config), InvalidArgument);
}

/// Seeded samples, greedy answers, stop strings, processors, several sequences, in a cache that is
/// too small for all of them.
std::vector<GenerationOutput> random_answers(Engine& engine, size_t count, size_t num_assistant) {
    std::mt19937 random(11);
    std::vector<GenerationHandle> handles;
    for (size_t i = 0; i < count; ++i) {
        GenerationConfig config;
        config.max_new_tokens = 1 + random() % 60;
        config.do_sample = i % 3 == 0;
        config.rng_seed = i;
        config.temperature = 0.3f;
        config.repetition_penalty = i % 4 == 0 ? 1.1f : 1.0f;
        config.logprobs = i % 2;
        config.num_assistant_tokens = i % 5 == 0 ? num_assistant : 0;
        config.num_return_sequences = config.do_sample ? 1 + i % 4 : 1;
        if (i % 7 == 0) config.stop_strings = {"abc", "fe"};
        if (i % 11 == 0) config.stop_token_ids = {3};
        config.min_tokens = std::min<size_t>(config.max_new_tokens, i % 13);
        config.cache_salt = i % 2 ? "odd" : "";
        Tokens prompt;
        for (size_t k = random() % 20; k < 24; ++k) prompt.push_back(int64_t(random() % 6));
        handles.emplace_back(engine.submit(std::nullopt, prompt, config));
        for (size_t k = random() % 4; k > 0; --k) engine.step();
    }
    while (engine.has_work()) engine.step();
    std::vector<GenerationOutput> all;
    for (const GenerationHandle& handle : handles)
        for (const GenerationOutput& output : handle.outputs_so_far(true)) all.push_back(output);
    return all;
}

TEST_F(SpeculatingEngine, FiveHundredRandomRequestsAreAnsweredAsWithoutDrafts) {
    const auto run = [&](const char* speculation, size_t num_assistant) {
        SchedulerConfig config = automatic();
        config.speculation = speculation;
        config.enable_prefix_caching = true;
        config.num_kv_blocks = 60;
        make(config);
        make_circles();
        auto all = random_answers(*engine, 500, num_assistant);
        EXPECT_EQ(engine->statistics().num_used_blocks, 0u);
        return all;
    };
    const auto expected = run("off", 0);
    EXPECT_GT(engine->statistics().num_preemptions, 0u);
    for (const size_t num_assistant : {0, 1, 7, 40}) {
        const auto drafted = run("auto", num_assistant);
        EXPECT_GT(sums().num_accepted_tokens, 500u);
        ASSERT_EQ(drafted.size(), expected.size());
        for (size_t i = 0; i < drafted.size(); ++i) {
            ASSERT_EQ(drafted[i].generated_ids, expected[i].generated_ids) << i;
            ASSERT_EQ(drafted[i].generated_log_probs, expected[i].generated_log_probs) << i;
            ASSERT_EQ(drafted[i].text, expected[i].text) << i;
            ASSERT_EQ(drafted[i].finish_reason, expected[i].finish_reason) << i;
        }
    }
}

}  // namespace
}  // namespace pagewheel
