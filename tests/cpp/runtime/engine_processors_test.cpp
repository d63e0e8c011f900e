// Logits processors of the caller's in requests, and log-probabilities that requests ask for.
#include <tbb/parallel_for.h>

#include <atomic>
#include <functional>

#include "pagewheel/errors.hpp"
#include "support/engine_fixture.hpp"

namespace pagewheel {
namespace {

using EngineProcessors = EngineTest;

/// Does what it is told to with each row.
class Doing final : public LogitsProcessor {
public:
    using Work = std::function<void(const LogitsRow&, const TokenHistory&)>;

    explicit Doing(Work work) : m_work(std::move(work)) {}
    void process(const LogitsRow& row, const TokenHistory& history) override {
        m_work(row, history);
    }
    std::unique_ptr<LogitsProcessor> fork() const override {
        return std::make_unique<Doing>(*this);
    }

private:
    Work m_work;
};

GenerationConfig with(size_t count, Doing::Work work) {
    GenerationConfig config;
    config.max_new_tokens = count;
    config.logits_processors = {std::make_shared<Doing>(std::move(work))};
    return config;
}

/// Cannot be forked, for either reason.
class Unforkable final : public LogitsProcessor {
public:
    explicit Unforkable(bool throws) : m_throws(throws) {}
    void process(const LogitsRow&, const TokenHistory&) override {}
    std::unique_ptr<LogitsProcessor> fork() const override {
        if (m_throws) throw 42;
        return nullptr;
    }

private:
    bool m_throws;
};

/// Asks for a step on whatever thread it is, and waits for tasks of its own.
class Anywhere final : public LogitsProcessor {
public:
    Anywhere(Engine& engine, std::atomic<size_t>& num_refused)
        : m_engine(engine), m_num_refused(num_refused) {}
    void process(const LogitsRow&, const TokenHistory&) override {
        try {
            m_engine.step();
        } catch (const Error&) {
            ++m_num_refused;
        }
        tbb::parallel_for(0, 100, [](int) {});
    }
    std::unique_ptr<LogitsProcessor> fork() const override {
        return std::make_unique<Anywhere>(*this);
    }
    bool runs_anywhere() const override { return true; }

private:
    Engine& m_engine;
    std::atomic<size_t>& m_num_refused;
};

/// Three tokens that the model would give.
class Successors final : public Drafter {
public:
    void propose(SequenceState& sequence, size_t most, std::vector<Draft>& drafts) override {
        const Tokens& tokens = sequence.tokens;
        for (size_t i = 1; i <= std::min<size_t>(most, 3); ++i)
            drafts.push_back({(tokens.back() + int64_t(i)) % int64_t(ScriptedModel::words)});
    }
};

TEST_F(EngineProcessors, AreCalledOncePerTokenThatIsKeptWithDraftsToo) {
    for (const bool has_drafts : {false, true}) {
        if (has_drafts) drafter = std::make_unique<Successors>();
        make();
        std::vector<Tokens> seen;
        const auto handle =
            submit({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11},
                   with(6, [&](const LogitsRow& row, const TokenHistory& history) {
                       seen.emplace_back(history.tokens.begin() + ptrdiff_t(history.prompt_length),
                                         history.tokens.end());
                       if (history.tokens.back() == 14) row.ban(15);  // which drafts propose
                       row.logits[50] = 5.0f;
                   }));
        finish();
        EXPECT_EQ(generated(handle), (Tokens{12, 13, 14, 50, 51, 52})) << has_drafts;
        EXPECT_EQ(seen,
                  (std::vector<Tokens>{
                      {}, {12}, {12, 13}, {12, 13, 14}, {12, 13, 14, 50}, {12, 13, 14, 50, 51}}));
        EXPECT_EQ(num_free(), num_blocks);
    }
}

TEST_F(EngineProcessors, ThatFailEndTheirRequestAlone) {
    const auto failing = submit({1}, with(9, [](const LogitsRow&, const TokenHistory& history) {
                                    if (history.num_generated() == 3)
                                        throw std::out_of_range("no idea");
                                }));
    const auto other = submit({2}, greedy(9));
    while (engine->has_work()) EXPECT_NO_THROW(engine->step());
    expect_told(failing, "the request was cancelled: a logits processor failed: no idea");
    EXPECT_EQ(generated(other), (Tokens{3, 4, 5, 6, 7, 8, 9, 10, 11}));
    EXPECT_EQ(num_free(), num_blocks);
}

TEST_F(EngineProcessors, ThatThrowNoExceptionEndTheirRequestAlone) {
    const auto failing =
        submit({1}, with(9, [](const LogitsRow&, const TokenHistory&) { throw 42; }));
    const auto other = submit({2}, greedy(3));
    while (engine->has_work()) EXPECT_NO_THROW(engine->step());
    expect_told(failing,
                "the request was cancelled: a logits processor failed: what it threw is no "
                "std::exception");
    EXPECT_EQ(generated(other), (Tokens{3, 4, 5}));
}

TEST_F(EngineProcessors, ThatDoNotForkAreRefusedAtOnce) {
    for (const bool throws : {false, true}) {
        GenerationConfig config = greedy(2);
        config.logits_processors = {std::make_shared<Unforkable>(throws)};
        EXPECT_THROW(submit({1}, config), Error) << throws;
    }
    EXPECT_FALSE(engine->has_work());
}

TEST_F(EngineProcessors, OnAnyThreadCannotStepNorWaitForOthers) {
    std::atomic<size_t> num_refused = 0;
    GenerationConfig config = greedy(20);
    config.logits_processors = {std::make_shared<Anywhere>(*engine, num_refused)};
    for (int64_t first = 1; first <= 8; ++first) submit({first}, config);
    finish();
    EXPECT_EQ(num_refused, 8 * 20u);
}

TEST_F(EngineProcessors, AreToldThatTheyCannotStepAndMayAskTheRest) {
    std::string error;
    const auto handle = submit({1}, with(2, [&](const LogitsRow&, const TokenHistory&) {
                                   engine->statistics();
                                   try {
                                       engine->step();
                                   } catch (const std::runtime_error& refusal) {
                                       error = refusal.what();
                                   }
                               }));
    finish();
    EXPECT_EQ(generated(handle), (Tokens{2, 3}));
    EXPECT_NE(error.find("cannot be done from an eviction policy or a logits processor"),
              std::string::npos);
}

TEST_F(EngineProcessors, MaySubmitARequest) {
    std::optional<GenerationHandle> second;
    const auto handle = submit({1}, with(2, [&](const LogitsRow&, const TokenHistory&) {
                                   if (!second) second = submit({40}, greedy(2));
                               }));
    finish();
    EXPECT_EQ(generated(*second), (Tokens{41, 42}));
}

TEST_F(EngineProcessors, ReachEverySampleAndEveryBeam) {
    for (const bool beams : {false, true}) {
        auto config = with(4, [](const LogitsRow& row, const TokenHistory&) {
            for (size_t i = 0; i < row.size; ++i)
                if (i < 60 || i > 62) row.ban(int64_t(i));
        });
        config.num_return_sequences = 3;
        config.do_sample = !beams;
        if (beams) config.num_beams = 3;
        const auto handle = submit({1}, config);
        finish();
        for (const GenerationOutput& output : handle.outputs_so_far()) {
            EXPECT_EQ(output.generated_ids.size(), 4u);
            for (const int64_t token : output.generated_ids)
                EXPECT_TRUE(60 <= token && token <= 62) << token;
        }
    }
}

TEST_F(EngineProcessors, TokenIdsOutsideOfTheVocabularyAreRefusedAtOnce) {
    const auto refusal = [&](const std::function<void(GenerationConfig&)>& set) {
        GenerationConfig config = greedy(2);
        set(config);
        try {
            submit({1}, config);
        } catch (const InvalidArgument& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    EXPECT_EQ(refusal([](auto& config) { config.logit_bias = {{100, 1.0f}}; }),
              "logit_bias has token id 100, outside of [0, 100)");
    EXPECT_EQ(refusal([](auto& config) { config.suppress_tokens = {-1}; }),
              "suppress_tokens has token id -1, outside of [0, 100)");
    EXPECT_EQ(refusal([](auto& config) { config.allowed_token_ids = {5, 100}; }),
              "allowed_token_ids has token id 100, outside of [0, 100)");
    EXPECT_EQ(refusal([](auto& config) { config.bad_words_ids = {{5}, {6, 100}}; }),
              "bad_words_ids has token id 100, outside of [0, 100)");
    EXPECT_EQ(refusal([](auto& config) { config.logit_bias = {{99, 1.0f}}; }), "");
}

TEST_F(EngineProcessors, LikeliestTokensComeWithTheTokensThatAreReadAndHaveTheirBytes) {
    model->score = [](const Tokens& tokens, size_t count, float* logits) {
        logits[size_t(tokens[count - 1]) + 1] = 10.0f;
        logits[size_t(tokens[count - 1]) + 2] = 9.0f;
    };
    GenerationConfig config = greedy(5);
    config.logprobs = 2;
    config.echo = true;
    GenerationHandle handle = submit({1, 2, 3}, config);
    engine->step();
    engine->step();
    const GenerationOutput first = handle.read_available().at(0);
    ASSERT_EQ(first.generated_ids, (Tokens{4, 5}));
    ASSERT_EQ(first.top_log_probs.size(), 2u);
    EXPECT_EQ(first.top_log_probs[1][0].id, 5);
    EXPECT_EQ(first.top_log_probs[1][0].bytes, "f");
    EXPECT_EQ(first.top_log_probs[1][1].id, 6);
    ASSERT_EQ(first.prompt_top_log_probs.size(), 2u);
    EXPECT_EQ(first.prompt_top_log_probs[0][1].id, 3);
    finish();
    const GenerationOutput rest = handle.read_available().at(0);
    EXPECT_EQ(rest.top_log_probs.size(), 3u);
    EXPECT_TRUE(rest.prompt_top_log_probs.empty());
    EXPECT_EQ(handle.outputs_so_far().at(0).top_log_probs.size(), 5u);
}

}  // namespace
}  // namespace pagewheel
