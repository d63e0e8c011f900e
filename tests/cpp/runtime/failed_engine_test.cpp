// An engine that fails in the middle of a step: everybody is told, and nothing is kept or waited
// for.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "pagewheel/errors.hpp"
#include "runtime/engine_thread.hpp"
#include "support/engine_fixture.hpp"

namespace pagewheel {
namespace {

/// Changes nothing. Its owner sees when the last request with it is gone.
struct Bystander final : LogitsProcessor {
    void process(const LogitsRow&, const TokenHistory&) override {}
    std::unique_ptr<LogitsProcessor> fork() const override { return std::make_unique<Bystander>(); }
};

class FailedEngine : public EngineTest {
protected:
    static SchedulerConfig two_at_once() {
        SchedulerConfig config = scheduler();
        config.max_num_seqs = 2;
        config.enable_prefix_caching = true;
        return config;
    }
    void SetUp() override { make(two_at_once()); }

    /// The next step computes its batch, and throws before that is counted.
    void break_next_step() {
        model->after_run = [this] {
            if (before_it_breaks) before_it_breaks();
            throw std::runtime_error("the floor gave way");
        };
    }

    std::function<void()> before_it_breaks;
};

TEST_F(FailedEngine, EveryHandleEndsWithItWhereverItsRequestStood) {
    std::vector<GenerationHandle> handles = {submit({1}, greedy(9)), submit({2}, greedy(9)),
                                             submit({3}, greedy(9))};  // the third waits
    for (int i = 0; i < 3; ++i) engine->step();
    before_it_breaks = [&] { handles.push_back(submit({4}, greedy(9))); };  // nobody has seen it
    std::vector<size_t> called;
    for (size_t i = 0; i < handles.size(); ++i)
        handles[i].notify_once([&called, i] { called.push_back(i); }, GenerationHandle::Until::END);
    break_next_step();
    EXPECT_THROW(engine->step(), std::runtime_error);

    ASSERT_EQ(handles.size(), 4u);
    EXPECT_EQ(called.size(), 3u);
    for (size_t i = 0; i < handles.size(); ++i) {
        GenerationHandle& handle = handles[i];
        EXPECT_EQ(handle.get_status(), Status::CANCEL);
        EXPECT_TRUE(handle.wait(std::chrono::hours(1)));
        EXPECT_THROW(handle.outputs_so_far(), PipelineFailed);
        expect_told(handle, "the floor gave way");
        if (i < 2) {  // what there was before
            EXPECT_FALSE(handle.read_available().empty());
        }
        EXPECT_THROW(handle.read_available(), PipelineFailed);
        EXPECT_THROW(handle.read(), PipelineFailed);
        EXPECT_THROW(handle.read_all(), PipelineFailed);
    }
}

TEST_F(FailedEngine, ItTakesAndShowsNothingAnyMore) {
    submit({1}, greedy(9));
    break_next_step();
    EXPECT_THROW(engine->step(), std::runtime_error);
    EXPECT_THROW(submit({1}, greedy(1)), PipelineFailed);
    EXPECT_THROW(engine->step(), PipelineFailed);
    EXPECT_THROW(engine->view_cache(1, std::nullopt), PipelineFailed);
    EXPECT_THROW(engine->prefixes(), PipelineFailed);  // what it would save may be wrong
    EXPECT_FALSE(engine->has_work());
}

TEST_F(FailedEngine, StatisticsCountNoRequestOfIt) {
    for (int64_t i = 0; i < 5; ++i) submit({i}, greedy(9));
    engine->step();
    break_next_step();
    EXPECT_THROW(engine->step(), std::runtime_error);
    const PipelineStatistics statistics = engine->statistics();
    EXPECT_EQ(statistics.num_requests, 0u);
    EXPECT_EQ(statistics.num_queued, 0u);
    EXPECT_EQ(statistics.num_steps, 1u);  // the failed one is none
}

TEST_F(FailedEngine, WhatItsRequestsHeldIsGivenBackAtOnce) {
    auto bystander = std::make_shared<Bystander>();
    const std::weak_ptr<Bystander> watched = bystander;
    GenerationConfig config = greedy(9);
    config.logits_processors = {std::move(bystander)};
    const GenerationHandle running = submit({1}, config), other = submit({2}, config),
                           waiting = submit({3}, config);
    config = {};
    engine->step();
    EXPECT_FALSE(watched.expired());
    break_next_step();
    EXPECT_THROW(engine->step(), std::runtime_error);
    EXPECT_TRUE(watched.expired());
    const std::weak_ptr<Engine> gone = engine;
    engine.reset();  // with its cache, whoever has handles
    EXPECT_TRUE(gone.expired());
    EXPECT_THROW(running.outputs_so_far(), PipelineFailed);
}

TEST_F(FailedEngine, WhoWaitsForTheThreadThatStepsIsWoken) {
    break_next_step();
    EngineThread thread(engine);
    thread.start();
    std::vector<std::thread> readers;
    size_t told[4] = {};
    for (size_t& each : told)
        readers.emplace_back([&] {
            try {
                submit({1}, greedy(9)).read_all();
            } catch (const PipelineFailed&) {  // of the handle, or as it was submitted
                each = 1;
            }
        });
    for (std::thread& reader : readers) reader.join();
    for (const size_t each : told) EXPECT_EQ(each, 1u);
    thread.stop();
    EXPECT_FALSE(thread.is_running());
}

TEST_F(FailedEngine, AFailureOfABatchAloneIsNone) {
    const GenerationHandle handle = submit({1}, greedy(3));
    model->before_run = [](const Batch&) { throw std::runtime_error("out of luck"); };
    EXPECT_THROW(engine->step(), std::runtime_error);
    try {
        handle.outputs_so_far();
        FAIL() << "the failure is not told";
    } catch (const PipelineFailed&) {
        FAIL() << "the pipeline goes on";
    } catch (const Error&) {
    }
    model->before_run = [](const Batch&) {};
    const GenerationHandle next = submit({1}, greedy(3));
    finish();
    EXPECT_EQ(generated(next), (Tokens{2, 3, 4}));
}

}  // namespace
}  // namespace pagewheel
