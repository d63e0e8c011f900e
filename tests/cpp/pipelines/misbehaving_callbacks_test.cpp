// Callbacks that throw, take long or generate again, and handles that are dropped, in C++.
// PAGEWHEEL_TEST_TINY_MODEL names the folder of a tiny model; token ids 4 to 266 are plain.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "pagewheel/pagewheel.hpp"

namespace pagewheel {
namespace {

using Tokens = std::vector<int64_t>;
using namespace std::chrono_literals;

const Tokens prompt{10, 20, 30};

GenerationConfig greedy(size_t count) {
    GenerationConfig config;
    config.max_new_tokens = count;
    config.ignore_eos = true;
    return config;
}

Tokens generate(ContinuousBatchingPipeline& pipeline, const StreamerVariant& streamer = {}) {
    return pipeline.generate(std::vector<Tokens>{prompt}, {greedy(12)}, streamer)
        .at(0)
        .m_generation_ids.at(0);
}

Tokens generate(LLMPipeline& pipeline, const StreamerVariant& streamer = {}) {
    ov::Tensor ids(ov::element::i64, {prompt.size()});
    std::copy(prompt.begin(), prompt.end(), ids.data<int64_t>());
    return pipeline.generate(EncodedInputs(ids), greedy(12), streamer).tokens.at(0);
}

ContinuousBatchingPipeline make_batching(const std::string& model) {
    SchedulerConfig config;
    config.num_kv_blocks = 100;
    return {model, config};
}

/// Calls `act` the first time it is asked.
std::function<void()> once(std::function<void()> act) {
    return [act = std::move(act), called = std::make_shared<std::atomic<bool>>(false)] {
        if (!called->exchange(true)) act();
    };
}

class ActingStreamer : public StreamerBase {
public:
    explicit ActingStreamer(std::function<void()> act) : m_act(std::move(act)) {}
    StreamingStatus write(const Tokens&) override {
        m_act();
        return StreamingStatus::RUNNING;
    }
    void end() override {}

private:
    std::function<void()> m_act;
};

class MisbehavingCallbacks : public testing::Test {
protected:
    void SetUp() override {
        if (!std::getenv("PAGEWHEEL_TEST_TINY_MODEL"))
            GTEST_SKIP() << "PAGEWHEEL_TEST_TINY_MODEL is not set";
    }
    static std::string model() { return std::getenv("PAGEWHEEL_TEST_TINY_MODEL"); }

    /// `test(pipeline, run)` for both pipelines and each callback of generate(): run(act) generates
    /// while the callback does `act`.
    template <class Test>
    static void for_each_callback(const Test& test) {
        auto batching = make_batching(model());
        LLMPipeline llm(model());
        test(batching, as_streamer(batching));
        test(batching, as_step_hook(batching));
        test(llm, as_streamer(llm));
        test(llm, as_step_hook(llm));
    }

    template <class Pipeline>
    static auto as_streamer(Pipeline& pipeline) {
        return [&](const std::function<void()>& act) {
            return generate(pipeline, std::make_shared<ActingStreamer>(act));
        };
    }
    template <class Pipeline>
    static auto as_step_hook(Pipeline& pipeline) {
        return [&](const std::function<void()>& act) {
            pipeline.set_step_hook(act);
            const std::shared_ptr<void> end(nullptr, [&](void*) { pipeline.set_step_hook({}); });
            return generate(pipeline);
        };
    }
};

TEST_F(MisbehavingCallbacks, WhatIsThrownReachesTheCallerAndTheRequestIsCancelled) {
    for_each_callback([](auto& pipeline, const auto& run) {
        const Tokens expected = generate(pipeline);
        EXPECT_THROW(run([] { throw std::domain_error("mine"); }), std::domain_error);
        EXPECT_EQ(pipeline.get_statistics().num_requests, 0u);
        EXPECT_EQ(pipeline.get_statistics().num_used_blocks, 0u);
        EXPECT_EQ(generate(pipeline), expected);
    });
}

TEST_F(MisbehavingCallbacks, ASlowOneHoldsUpItsOwnCallOnly) {
    for_each_callback([](auto& pipeline, const auto& run) {
        const Tokens expected = generate(pipeline);
        Tokens other;
        const Tokens own = run(once([&] {
            auto beside = std::async(std::launch::async, [&] { return generate(pipeline); });
            ASSERT_EQ(beside.wait_for(60s), std::future_status::ready);
            other = beside.get();
        }));
        EXPECT_EQ(own, expected);
        EXPECT_EQ(other, expected);
    });
}

TEST_F(MisbehavingCallbacks, OneMayGenerate) {
    for_each_callback([](auto& pipeline, const auto& run) {
        const Tokens expected = generate(pipeline);
        Tokens inner;
        EXPECT_EQ(run(once([&] { inner = generate(pipeline); })), expected);
        EXPECT_EQ(inner, expected);
    });
}

TEST_F(MisbehavingCallbacks, TheThreadOfStartDropsWhatANotificationThrows) {
    auto pipeline = make_batching(model());
    const Tokens expected = generate(pipeline);
    pipeline.start();
    const auto handle = pipeline.add_request(1, prompt, greedy(12));
    handle->notify_once([] { throw std::domain_error("mine"); });
    EXPECT_EQ(handle->read_all().at(0).generated_ids, expected);
    EXPECT_EQ(generate(pipeline), expected);
}

TEST_F(MisbehavingCallbacks, ThreadsThatGenerateAtOnceGetWhatTheyWouldAlone) {
    const auto check = [](auto& pipeline) {
        const Tokens expected = generate(pipeline);
        std::vector<std::future<Tokens>> threads;
        for (int i = 0; i < 4; ++i)
            threads.push_back(std::async(std::launch::async, [&] { return generate(pipeline); }));
        for (auto& thread : threads) EXPECT_EQ(thread.get(), expected);
    };
    auto batching = make_batching(model());
    check(batching);
    batching.start();
    check(batching);
    LLMPipeline llm(model());
    check(llm);
}

TEST_F(MisbehavingCallbacks, TenThousandDroppedHandlesLeaveNothing) {
    for (const bool started : {false, true}) {
        auto pipeline = make_batching(model());
        const Tokens expected = generate(pipeline);
        if (started) pipeline.start();
        std::weak_ptr<GenerationHandle> kept_by_its_callback;
        for (uint64_t i = 0; i < 10'000; ++i) {
            const auto handle = pipeline.add_request(i, prompt, greedy(30));
            if (i % 2 == 0) handle->notify_once([handle] {});
            if (i == 5000) kept_by_its_callback = handle;
            if (!started && i % 50 == 49) pipeline.step();
        }
        while (pipeline.has_non_finished_requests()) pipeline.step();
        EXPECT_TRUE(kept_by_its_callback.expired());
        const PipelineStatistics statistics = pipeline.get_statistics();
        EXPECT_EQ(statistics.num_free_blocks, statistics.num_blocks);
        EXPECT_EQ(generate(pipeline), expected);
    }
}

}  // namespace
}  // namespace pagewheel
