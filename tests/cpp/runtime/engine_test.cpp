// A request's life, and what failures leave of it.
#include "support/engine_fixture.hpp"

#include <functional>

#include "pagewheel/log.hpp"

namespace pagewheel {
namespace {

TEST_F(EngineTest, ARequestGetsWhatTheModelSaysAndEndsByLength) {
    const GenerationHandle handle = submit({1, 2, 3}, greedy(4));
    EXPECT_EQ(handle.get_status(), Status::RUNNING);
    finish();
    EXPECT_EQ(handle.get_status(), Status::FINISHED);
    EXPECT_EQ(generated(handle), (Tokens{4, 5, 6, 7}));
    EXPECT_EQ(handle.outputs_so_far().at(0).finish_reason, Reason::LENGTH);
    EXPECT_EQ(num_free(), num_blocks);
}

TEST_F(EngineTest, AStopTokenEndsIt) {
    GenerationConfig config = greedy(20);
    config.stop_token_ids = {6};
    const GenerationHandle handle = submit({3}, config);
    finish();
    EXPECT_EQ(generated(handle), (Tokens{4, 5, 6}));
    EXPECT_EQ(handle.outputs_so_far().at(0).finish_reason, Reason::STOP);
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
    soon.timeout = 100;
    const GenerationHandle running = submit({1}, soon), waiting = submit({2}, soon);
    engine->step();
    now += std::chrono::seconds(99);
    engine->step();
    EXPECT_EQ(running.get_status(), Status::RUNNING);
    now += std::chrono::seconds(1);
    engine->step();
    EXPECT_EQ(running.get_status(), Status::TIMEOUT);
    EXPECT_EQ(generated(running).size(), 2u);
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
    expect_told(first, "out of luck");
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
        EXPECT_TRUE(fails([&] { handle.outputs_so_far(); }));
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

TEST_F(EngineTest, WhoeverWaitsForTheEndIsCalledThenAndNotBefore) {
    GenerationHandle handle = submit({1}, greedy(3));
    size_t num_outputs = 0, ends = 0;
    handle.notify_once([&] { ++ends; }, GenerationHandle::Until::END);
    handle.notify_once([&] { ++num_outputs; });
    engine->step();
    EXPECT_EQ(num_outputs, 1u);
    handle.notify_once([&] { ++ends; }, GenerationHandle::Until::END);  // can be read, goes on
    EXPECT_EQ(ends, 0u);
    finish();
    EXPECT_EQ(ends, 2u);
    handle.notify_once([&] { ++ends; }, GenerationHandle::Until::END);
    EXPECT_EQ(ends, 3u);
}

TEST_F(EngineTest, StatisticsGoToTheLogAfterTheStepAndItsCallbackMayAskTheEngine) {
    SchedulerConfig config = scheduler();
    config.statistics_interval = 2;
    make(config);
    std::vector<std::string> lines;
    set_log_callback([&](LogLevel level, const std::string& line) {
        EXPECT_EQ(level, LogLevel::INFO);
        EXPECT_GT(engine->statistics().num_steps, 0u);
        if (lines.empty()) engine->step();  // the third
        lines.push_back(line);
    });
    submit({1}, greedy(5));
    finish();
    set_log_callback({});
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_NE(lines[0].find("step 2: 1 running"), std::string::npos) << lines[0];
    EXPECT_NE(lines[1].find("step 4: 1 running"), std::string::npos) << lines[1];
}

TEST_F(EngineTest, MetricsAreTheStatisticsUnderOtherNames) {
    submit({1, 2, 3, 4, 5}, greedy(4));
    engine->step();
    const PipelineStatistics statistics = engine->statistics();
    EXPECT_EQ(statistics.num_requests, 1u);
    EXPECT_EQ(statistics.num_used_blocks, 2u);
    EXPECT_EQ(statistics.max_used_blocks, 2u);
    EXPECT_EQ(statistics.mean_used_blocks, 2.0);
    EXPECT_EQ(statistics.block_bytes, ScriptedModel::bytes_per_block);
    const PipelineMetrics metrics = metrics_of(statistics);
    EXPECT_EQ(metrics.requests, 1u);
    EXPECT_FLOAT_EQ(metrics.cache_usage, 100.0f * 2 / num_blocks);
    finish();
    EXPECT_EQ(engine->statistics().num_used_blocks, 0u);
    EXPECT_EQ(engine->statistics().max_used_blocks, 2u);
    EXPECT_LT(engine->statistics().mean_used_blocks, 2.0);
}

TEST_F(EngineTest, ACallbacksExceptionDoesNotHideTheStepsFailure) {
    GenerationHandle handle = submit({1}, greedy(3));
    model->before_run = [](const Batch&) { throw std::runtime_error("the model"); };
    handle.notify_once([] { throw std::logic_error("the callback"); });
    EXPECT_THROW(engine->step(), std::runtime_error);
}

TEST_F(EngineTest, ThePromptsLogProbabilitiesAreAskedOnce) {
    GenerationConfig config = greedy(6);
    config.echo = true;
    config.logprobs = 1;
    std::vector<size_t> rows;
    model->before_run = [&](const Batch& batch) { rows.push_back(batch.entries[0].num_logits); };
    const Handle state = submit_state(Tokens(12, 1), config);
    for (int i = 0; i < 2; ++i) engine->step();
    EXPECT_FALSE(state->request->sequences[0]->wants_prompt_logits);
    finish();
    EXPECT_EQ(rows, (std::vector<size_t>{8, 4, 1, 1, 1, 1, 1}));
    EXPECT_EQ(state->outputs[0].all.prompt_log_probs.size(), 11u);
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
