// The engine on a model that is a script: a request's life, and what failures leave of it.
#include "runtime/engine.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <thread>

#include "scripted_model.hpp"

namespace pagewheel {
namespace {

using Tokens = std::vector<int64_t>;
using Status = GenerationStatus;
using Reason = GenerationFinishReason;

constexpr size_t num_blocks = 64;

/// Token t is the letter 'a' + t % 26.
std::string letters(const Tokens& tokens) {
    std::string text;
    for (const int64_t token : tokens) text += char('a' + token % 26);
    return text;
}

class EngineTest : public testing::Test {
protected:
    static SchedulerConfig scheduler() {
        SchedulerConfig config;
        config.num_kv_blocks = num_blocks;
        config.max_num_batched_tokens = 8;
        return config;
    }
    void make(const SchedulerConfig& config = scheduler()) {
        auto scripted = std::make_unique<ScriptedModel>();
        model = scripted.get();
        EngineParts parts;
        parts.model = std::move(scripted);
        parts.context_length = 1000;
        parts.decoders = {letters, letters};
        engine = std::make_shared<Engine>(std::move(parts), config);
    }
    void SetUp() override { make(); }

    static GenerationConfig greedy(size_t count) {
        GenerationConfig config;
        config.max_new_tokens = count;
        return config;
    }
    GenerationHandle submit(const Tokens& prompt, const GenerationConfig& config) {
        return GenerationHandle(engine->submit(std::nullopt, prompt, config));
    }
    void finish() {
        while (engine->has_work()) engine->step();
    }
    size_t num_free() const { return engine->statistics().num_free_blocks; }
    static Tokens generated(const GenerationHandle& handle) {
        return handle.read_all().at(0).generated_ids;
    }

    ScriptedModel* model = nullptr;
    std::shared_ptr<Engine> engine;
};

TEST_F(EngineTest, ARequestGetsWhatTheModelSaysAndEndsByLength) {
    const GenerationHandle handle = submit({1, 2, 3}, greedy(4));
    EXPECT_EQ(handle.get_status(), Status::RUNNING);
    finish();
    EXPECT_EQ(handle.get_status(), Status::FINISHED);
    EXPECT_EQ(generated(handle), (Tokens{4, 5, 6, 7}));
    EXPECT_EQ(handle.read_all().at(0).finish_reason, Reason::LENGTH);
    EXPECT_EQ(num_free(), num_blocks);
}

TEST_F(EngineTest, AStopTokenEndsIt) {
    GenerationConfig config = greedy(20);
    config.stop_token_ids = {6};
    const GenerationHandle handle = submit({3}, config);
    finish();
    EXPECT_EQ(generated(handle), (Tokens{4, 5, 6}));
    EXPECT_EQ(handle.read_all().at(0).finish_reason, Reason::STOP);
}

TEST_F(EngineTest, AHundredRequestsWithStopStringsEndWhereTheirTextDoes) {
    std::mt19937 random(1);
    std::vector<std::pair<GenerationHandle, std::string>> requests;
    std::vector<int64_t> firsts;
    for (size_t i = 0; i < 100; ++i) {
        const int64_t first = int64_t(random() % 50);
        const size_t begin = size_t(random() % 20), length = 1 + random() % 4;
        Tokens following;
        for (size_t k = 0; k < 30; ++k) following.push_back((first + 1 + int64_t(k)) % 100);
        GenerationConfig config = greedy(30);
        config.stop_strings = {letters(following).substr(begin, length)};
        requests.emplace_back(submit({first}, config), *config.stop_strings.begin());
        firsts.push_back(first);
    }
    finish();
    for (size_t i = 0; i < requests.size(); ++i) {
        const auto& [handle, stop] = requests[i];
        const std::string text = letters(generated(handle));
        ASSERT_GE(text.size(), stop.size()) << i;
        EXPECT_EQ(text.find(stop), text.size() - stop.size()) << i << " from " << firsts[i];
        EXPECT_EQ(handle.read_all().at(0).finish_reason, Reason::STOP);
    }
    EXPECT_EQ(num_free(), num_blocks);
}

TEST_F(EngineTest, CancelAndStopEndARequestAtTheNextStepInEveryStage) {
    const Tokens prompt(20, 5);  // three steps of 8 tokens
    for (const Status wanted : {Status::CANCEL, Status::STOP})
        for (size_t steps = 0; steps < 6; ++steps) {
            GenerationHandle handle = submit(prompt, greedy(10));
            for (size_t i = 0; i < steps; ++i) engine->step();
            if (wanted == Status::CANCEL)
                handle.cancel();
            else
                handle.stop(Reason::STOP);
            engine->step();
            EXPECT_EQ(handle.get_status(), wanted) << steps;
            EXPECT_EQ(generated(handle).size(), steps < 3 ? 0 : steps - 2) << steps;
            EXPECT_EQ(num_free(), num_blocks);
            EXPECT_FALSE(engine->has_work());
        }
}

TEST_F(EngineTest, ADeadlineEndsAWaitingAndARunningRequest) {
    SchedulerConfig config = scheduler();
    config.max_num_seqs = 1;
    make(config);
    GenerationConfig soon = greedy(200);
    soon.timeout = 0.3f;
    const GenerationHandle running = submit({1}, soon), waiting = submit({2}, soon);
    engine->step();
    std::this_thread::sleep_for(std::chrono::milliseconds(350));
    engine->step();
    EXPECT_EQ(running.get_status(), Status::TIMEOUT);
    EXPECT_EQ(generated(running).size(), 1u);
    EXPECT_EQ(waiting.get_status(), Status::TIMEOUT);
    EXPECT_TRUE(generated(waiting).empty());
}

TEST_F(EngineTest, PreemptedRequestsGetTheSameTokens) {
    SchedulerConfig config = scheduler();
    config.num_kv_blocks = 8;
    make(config);
    std::vector<GenerationHandle> handles;
    for (int64_t i = 0; i < 4; ++i) handles.push_back(submit({i}, greedy(25)));
    finish();
    EXPECT_GT(engine->statistics().num_preemptions, 0u);
    for (int64_t i = 0; i < 4; ++i) {
        const Tokens tokens = generated(handles[size_t(i)]);
        ASSERT_EQ(tokens.size(), 25u);
        for (int64_t k = 0; k < 25; ++k) EXPECT_EQ(tokens[size_t(k)], i + 1 + k);
    }
}

TEST_F(EngineTest, AFailedRunEndsItsBatchWithTheReasonAndNoOther) {
    SchedulerConfig config = scheduler();
    config.max_num_seqs = 1;
    make(config);
    const GenerationHandle first = submit({1}, greedy(3)), second = submit({2}, greedy(3));
    model->before_run = [](const Batch&) { throw std::runtime_error("out of luck"); };
    EXPECT_THROW(engine->step(), std::runtime_error);
    model->before_run = [](const Batch&) {};
    finish();
    EXPECT_EQ(first.get_status(), Status::CANCEL);
    try {
        first.read_all();
        FAIL() << "the failure is not told";
    } catch (const std::runtime_error& error) {
        EXPECT_NE(std::string(error.what()).find("out of luck"), std::string::npos);
    }
    EXPECT_EQ(generated(second), (Tokens{3, 4, 5}));
    EXPECT_EQ(num_free(), num_blocks);
}

TEST_F(EngineTest, AFailureOutsideTheModelsRunEndsEveryRequestWithTheCauseAndThePipeline) {
    SchedulerConfig config = scheduler();
    config.num_kv_blocks = 200;
    config.max_num_batched_tokens = 256;
    make(config);
    // Memory is given back where most of what was used is free again: looked at now and then.
    const GenerationHandle running = submit({1}, greedy(150));
    for (int64_t i = 0; i < 40; ++i) submit(Tokens(16, i), greedy(1));
    std::optional<GenerationHandle> submitted;
    model->when_memory_is_unused = [&] {
        submitted = submit({2}, greedy(9));  // and nobody has looked at it yet
        throw std::runtime_error("the floor gave way");
    };
    const auto fails = [](const std::function<void()>& call) {
        try {
            call();
        } catch (const std::runtime_error& error) {
            return std::string(error.what()).find("the floor gave way") != std::string::npos;
        }
        return false;
    };
    EXPECT_TRUE(fails([&] { finish(); }));
    ASSERT_TRUE(submitted.has_value());
    for (const GenerationHandle& handle : {running, *submitted}) {
        EXPECT_EQ(handle.get_status(), Status::CANCEL);
        EXPECT_TRUE(fails([&] { handle.read_all(); }));
        EXPECT_TRUE(handle.wait(std::chrono::hours(1)));
    }
    EXPECT_FALSE(engine->has_work());
    EXPECT_TRUE(fails([&] { engine->step(); }));
    EXPECT_TRUE(fails([&] { submit({1}, greedy(1)); }));
}

TEST_F(EngineTest, CallbacksRunAfterTheStepAndMayStep) {
    GenerationHandle first = submit({1}, greedy(5)), second = submit({2}, greedy(5));
    std::vector<Tokens> seen;
    first.notify_once([&] {
        seen.push_back(generated(second));
        engine->step();
        seen.push_back(generated(second));
    });
    engine->step();
    EXPECT_EQ(seen, (std::vector<Tokens>{{3}, {3, 4}}));
    finish();
}

TEST_F(EngineTest, AnEngineThatGoesEndsItsRequests) {
    GenerationHandle handle = submit({1}, greedy(5));
    bool called = false;
    handle.notify_once([&] { called = true; });
    engine.reset();
    EXPECT_TRUE(called);
    EXPECT_EQ(handle.get_status(), Status::CANCEL);
    handle.cancel();
}

}  // namespace
}  // namespace pagewheel
