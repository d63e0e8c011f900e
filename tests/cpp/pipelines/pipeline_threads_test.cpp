// Callbacks and threads that call the pipeline in unexpected moments. PAGEWHEEL_TEST_TINY_MODEL
// names the folder of a tiny model (scripts/run_tests makes it); token ids 4 to 266 are plain.
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <optional>
#include <thread>

#include "pagewheel/errors.hpp"
#include "pagewheel/eviction_policy.hpp"
#include "pagewheel/pagewheel.hpp"
#include "runtime/requests.hpp"

namespace pagewheel {
namespace {

using Tokens = std::vector<int64_t>;
using Handle = std::shared_ptr<GenerationHandle>;
using namespace std::chrono_literals;

const Tokens prompt{10, 20, 30};
const std::vector<Tokens> prompts{prompt};

GenerationConfig greedy(size_t count) {
    GenerationConfig config;
    config.max_new_tokens = count;
    config.ignore_eos = true;
    return config;
}

/// Asks the test whenever it is to choose, and drops the oldest.
class AskingPolicy : public EvictionPolicy {
public:
    std::function<void()> ask;
    size_t layer = 0;  ///< that it was asked for last

    void drop(const EvictionView& view, size_t count, std::vector<size_t>& dropped) override {
        layer = view.layer;
        if (ask) ask();
        for (size_t i = 0; i < count; ++i) dropped.push_back(view.first_unit + i);
    }
};

class PipelineThreads : public testing::Test {
protected:
    void SetUp() override {
        if (!std::getenv("PAGEWHEEL_TEST_TINY_MODEL"))
            GTEST_SKIP() << "PAGEWHEEL_TEST_TINY_MODEL is not set";
    }
    static std::string model() { return std::getenv("PAGEWHEEL_TEST_TINY_MODEL"); }
    static SchedulerConfig scheduler() {
        SchedulerConfig config;
        config.num_kv_blocks = 100;
        config.enable_prefix_caching = true;
        return config;
    }
    static std::shared_ptr<ContinuousBatchingPipeline> make() {
        return std::make_shared<ContinuousBatchingPipeline>(model(), scheduler());
    }
    static std::shared_ptr<ContinuousBatchingPipeline> make_with(
        const std::shared_ptr<EvictionPolicy>& policy) {
        SchedulerConfig config = scheduler();
        config.use_cache_eviction = true;
        config.cache_eviction_config =
            CacheEvictionConfig(32, 32, 128, AggregationMode::NORM_SUM, true);
        config.cache_eviction_config.policy.clear();
        config.cache_eviction_config.custom_policy = policy;
        return std::make_shared<ContinuousBatchingPipeline>(model(), config);
    }
    static Tokens answer(ContinuousBatchingPipeline& pipeline) {
        return pipeline.generate(prompts, {greedy(4)}).at(0).m_generation_ids.at(0);
    }
    static void wait_until_over(const Handle& handle) {
        while (handle->get_status() == GenerationStatus::RUNNING) {
            handle->wait(1s);
            handle->read_available();
        }
    }
};

/// What `call` does in a callback of the thread that start() made, and that the pipeline goes on.
/// Where that thread was faster, notify_once() calls back at once from here: another request then.
template <class Call>
void in_callback_of_service(const std::shared_ptr<ContinuousBatchingPipeline>& pipeline,
                            Call&& call) {
    pipeline->start();
    const auto here = std::this_thread::get_id();
    for (uint64_t id = 100;; ++id) {
        std::promise<bool> called;
        const Handle handle = pipeline->add_request(id, prompt, greedy(20));
        handle->notify_once([&] {
            const bool in_service = std::this_thread::get_id() != here;
            if (in_service) call(handle);
            called.set_value(in_service);
        });
        auto in_service = called.get_future();
        ASSERT_EQ(in_service.wait_for(60s), std::future_status::ready);
        if (in_service.get()) return;
    }
}

TEST_F(PipelineThreads, ReadingMakesTheStepsThatNobodyElseMakes) {
    for (const bool started : {false, true}) {
        const auto pipeline = make();
        if (started) pipeline->start();
        const Handle handle = pipeline->add_request(1, prompt, greedy(5));
        Tokens tokens;
        while (handle->get_status() == GenerationStatus::RUNNING)
            for (const auto& [index, output] : handle->read())
                tokens.insert(tokens.end(), output.generated_ids.begin(),
                              output.generated_ids.end());
        for (const GenerationOutput& rest : handle->read_all())  // of a step since
            tokens.insert(tokens.end(), rest.generated_ids.begin(), rest.generated_ids.end());
        EXPECT_EQ(tokens, handle->outputs_so_far().at(0).generated_ids);
        EXPECT_EQ(tokens.size(), 5u);
        EXPECT_TRUE(handle->read().empty());
        EXPECT_TRUE(handle->read_all().empty());
        const Handle whole = pipeline->add_request(1, prompt, greedy(5));
        EXPECT_EQ(whole->read_all().at(0).generated_ids, tokens);
    }
}

TEST_F(PipelineThreads, AHandleThatIsStoppedOrDroppedGivesNothingToRead) {
    const auto pipeline = make();
    Handle handle = pipeline->add_request(1, prompt, greedy(100));
    pipeline->step();
    handle->stop();
    EXPECT_EQ(handle->get_status(), GenerationStatus::STOP);
    EXPECT_FALSE(handle->can_read());
    EXPECT_THROW(handle->read(), std::runtime_error);
    EXPECT_THROW(handle->read_all(), std::runtime_error);
    EXPECT_EQ(handle->read_available().at(0).generated_ids.size(), 1u);
    pipeline->step();
    EXPECT_FALSE(pipeline->has_non_finished_requests());
    handle = pipeline->add_request(1, prompt, greedy(100));
    pipeline->step();
    handle.reset();
    pipeline->step();
    EXPECT_FALSE(pipeline->has_non_finished_requests());
}

TEST_F(PipelineThreads, StopInACallbackOfTheThreadThatStepsEndsItAfterTheStep) {
    const auto pipeline = make();
    const Tokens expected = answer(*pipeline);
    in_callback_of_service(pipeline, [&](const Handle&) { pipeline->stop(); });
    EXPECT_EQ(answer(*pipeline), expected);
    pipeline->start();  // and again, while the first one may still be on its way out
    EXPECT_EQ(answer(*pipeline), expected);
    pipeline->stop();
}

TEST_F(PipelineThreads, TheLastReferenceMayBeDroppedInACallbackOfTheThreadThatSteps) {
    auto pipeline = make();
    std::promise<void> dropped;
    const Handle handle = pipeline->add_request(1, prompt, greedy(50));
    handle->notify_once([&] {
        pipeline.reset();
        dropped.set_value();
    });
    pipeline->start();
    ASSERT_EQ(dropped.get_future().wait_for(60s), std::future_status::ready);
    handle->notify_once([] {});
    while (handle->get_status() == GenerationStatus::RUNNING)
        handle->wait(1s), handle->read_available();
    EXPECT_EQ(handle->get_status(), GenerationStatus::CANCEL);
    ContinuousBatchingPipeline::wait_for_stopped(10s);
}

TEST_F(PipelineThreads, CallbacksOfTheThreadThatStepsMayStepGenerateAndAskThePrefixCache) {
    const auto pipeline = make();
    const Tokens expected = answer(*pipeline);
    in_callback_of_service(pipeline, [&](const Handle&) {
        pipeline->step();
        EXPECT_EQ(answer(*pipeline), expected);
        EXPECT_GT(pipeline->get_prefix_cache().num_tokens(), 0u);
        EXPECT_EQ(pipeline->get_prefix_cache().pin(prompt), prompt.size());
    });
    pipeline->stop();
}

TEST_F(PipelineThreads, AWaitForOnesOwnThreadIsRefused) {
    const auto pipeline = make();
    in_callback_of_service(pipeline, [&](const Handle& handle) {
        EXPECT_TRUE(handle->wait(1h));  // it has something to read
        handle->read_available();
        EXPECT_FALSE(handle->can_wait());
        EXPECT_FALSE(handle->wait(0s));
        EXPECT_THROW(handle->wait(1h), std::runtime_error);
    });
    pipeline->stop();
    const Handle other = pipeline->add_request(2, prompt, greedy(30));
    size_t num_refused = 0;
    pipeline->generate(prompts, {greedy(3)}, TextStreamer::Callback([&](const std::string&) {
                           other->read_available();
                           if (!other->can_wait()) ++num_refused;
                           return StreamingStatus::RUNNING;
                       }));
    EXPECT_GT(num_refused, 0u);
    EXPECT_TRUE(other->can_wait());
}

TEST_F(PipelineThreads, APolicyIsToldWhatItsStepCannotDo) {
    const auto policy = std::make_shared<AskingPolicy>();
    const auto pipeline = make_with(policy);
    size_t num_asked = 0;
    policy->ask = [&] {
        if (num_asked++ > 0) return;
        EXPECT_THROW(pipeline->step(), std::runtime_error);
        EXPECT_THROW(answer(*pipeline), std::runtime_error);
        EXPECT_THROW(pipeline->get_prefix_cache().num_tokens(), std::runtime_error);
        EXPECT_THROW(pipeline->get_prefix_cache().pin(prompt), std::runtime_error);
        EXPECT_THROW(pipeline->get_prefix_cache().clear(), std::runtime_error);
        const Handle handle = pipeline->add_request(7, prompt, greedy(2));
        EXPECT_THROW(handle->wait(1h), std::runtime_error);
        handle->cancel();
        pipeline->get_statistics();
        pipeline->stop();
    };
    for (const bool started : {false, true}) {
        num_asked = 0;
        if (started) pipeline->start();
        const auto results = pipeline->generate(prompts, {greedy(300)});
        EXPECT_EQ(results.at(0).m_generation_ids.at(0).size(), 300u);
        EXPECT_GT(num_asked, 0u);
    }
    while (pipeline->has_non_finished_requests()) pipeline->step();
}

TEST_F(PipelineThreads, StopInAPolicyOfACallersStepDoesNotWaitForTheThreadThatWaitsForTheStep) {
    const auto policy = std::make_shared<AskingPolicy>();
    const auto pipeline = make_with(policy);
    std::atomic<size_t> num_stops{0};
    policy->ask = [&] {
        pipeline->start();
        pipeline->stop();
        ++num_stops;
    };
    const Handle handle = pipeline->add_request(1, prompt, greedy(300));
    while (pipeline->has_non_finished_requests()) pipeline->step();
    EXPECT_GT(num_stops, 0u);
    ContinuousBatchingPipeline::wait_for_stopped(10s);
}

TEST_F(PipelineThreads, WhatACallbackThrowsReachesTheCallerAndTheOthersAreCalled) {
    const auto pipeline = make();
    const Handle first = pipeline->add_request(1, prompt, greedy(5)),
                 second = pipeline->add_request(2, prompt, greedy(5));
    bool second_called = false;
    first->notify_once([] { throw std::runtime_error("from the callback"); });
    second->notify_once([&] { second_called = true; });
    EXPECT_THROW(while (!first->can_read()) pipeline->step(), std::runtime_error);
    while (pipeline->has_non_finished_requests()) pipeline->step();
    EXPECT_TRUE(second_called);
    EXPECT_EQ(first->get_status(), GenerationStatus::FINISHED);
}

TEST_F(PipelineThreads, ATextStreamerServesOneCallAtATime) {
    const auto pipeline = make();
    std::shared_ptr<TextStreamer> streamer;
    size_t num_refused = 0;
    streamer = std::make_shared<TextStreamer>(pipeline->get_tokenizer(), [&](const std::string&) {
        std::thread([&] {
            EXPECT_THROW(pipeline->generate(prompts, {greedy(2)}, streamer), std::runtime_error);
            ++num_refused;
        }).join();
        return StreamingStatus::RUNNING;
    });
    const auto results = pipeline->generate(prompts, {greedy(20)}, streamer);
    EXPECT_EQ(results.at(0).m_generation_ids.at(0).size(), 20u);
    EXPECT_GT(num_refused, 0u);
    num_refused = 0;
    pipeline->generate(prompts, {greedy(20)}, streamer);  // free again
    EXPECT_GT(num_refused, 0u);
}

TEST_F(PipelineThreads, TheLastCopyMayBeDroppedInACallbackOfGenerate) {
    std::optional<ContinuousBatchingPipeline> pipeline(*make());
    const auto drop = TextStreamer::Callback([&](const std::string&) {
        pipeline.reset();
        return StreamingStatus::RUNNING;
    });
    EXPECT_EQ(pipeline->generate(prompts, {greedy(20)}, drop).at(0).m_generation_ids[0].size(),
              20u);
    pipeline.emplace(*make());
    EXPECT_FALSE(pipeline->generate(std::vector<std::string>{"word"}, {greedy(20)}, drop).empty());
    std::optional<LLMPipeline> chat(model());
    chat->start_chat();
    const auto results = chat->generate(std::string("word"), greedy(20),
                                        TextStreamer::Callback([&](const std::string&) {
                                            chat.reset();
                                            return StreamingStatus::RUNNING;
                                        }));
    EXPECT_EQ(results.texts.size(), 1u);
}

TEST_F(PipelineThreads, ATextStreamerRefusesItsOwnCallback) {
    const auto pipeline = make();
    std::shared_ptr<TextStreamer> streamer;
    size_t num_refused = 0;
    streamer = std::make_shared<TextStreamer>(pipeline->get_tokenizer(), [&](const std::string&) {
        try {
            streamer->write({10});
        } catch (const std::runtime_error&) {
            ++num_refused;
        }
        return StreamingStatus::RUNNING;
    });
    pipeline->generate(prompts, {greedy(20)}, streamer);
    EXPECT_GT(num_refused, 0u);
}

TEST_F(PipelineThreads, ChatsBeginAndEndWhileOtherThreadsGenerate) {
    LLMPipeline pipeline(model());
    const auto alone = pipeline.generate(std::string("word"), greedy(3)).texts;
    std::atomic<bool> over{false};
    std::thread changing([&] {
        while (!over) {
            pipeline.start_chat("system");
            pipeline.set_generation_config(greedy(3));
            pipeline.finish_chat();
        }
    });
    const auto generate = [&] {
        for (int i = 0; i < 30; ++i) try {
                pipeline.generate(std::string("word"), greedy(3));
            } catch (const std::runtime_error&) {  // another turn of the same chat
            }
    };
    std::thread other(generate);
    generate();
    other.join();
    over = true;
    changing.join();
    EXPECT_EQ(pipeline.generate(std::string("word"), greedy(3)).texts, alone);
}

TEST_F(PipelineThreads, AChatTakesOneTurnAtATimeAndAFinishedOneStaysFinished) {
    LLMPipeline pipeline(model());
    pipeline.start_chat();
    const std::string alone = pipeline.generate(std::string("word"), greedy(4)).texts.at(0);
    pipeline.start_chat();
    bool refused = false;
    pipeline.generate(std::string("word"), greedy(20),
                      TextStreamer::Callback([&](const std::string&) {
                          try {
                              pipeline.generate(std::string("another"), greedy(1));
                          } catch (const std::runtime_error&) {
                              refused = true;
                          }
                          pipeline.finish_chat();
                          return StreamingStatus::RUNNING;
                      }));
    EXPECT_TRUE(refused);
    pipeline.generate(std::vector<std::string>{"a list, which a chat refuses"}, greedy(1));
    pipeline.start_chat();
    EXPECT_EQ(pipeline.generate(std::string("word"), greedy(4)).texts.at(0), alone);
}

TEST(RequestQueue, KeepsNothingOfHandlesWhoseEngineIsGone) {
    const auto state = std::make_shared<GenerationHandle::State>();
    state->queue = std::make_shared<RequestQueue>(0);
    GenerationHandle handle(state);
    const long alone = state.use_count();
    handle.cancel();
    EXPECT_EQ(state.use_count(), alone + 1);
    state->queue->close();
    EXPECT_EQ(state.use_count(), alone);
    handle.cancel();
    handle.stop();
    EXPECT_EQ(state.use_count(), alone);
}

TEST_F(PipelineThreads, AnyNumberMayBeARequestsId) {
    const auto pipeline = make();
    const Tokens expected = answer(*pipeline);
    std::vector<Handle> handles;
    for (const uint64_t id :
         {uint64_t(0), uint64_t(1) << 63, (uint64_t(1) << 63) + 1, ~uint64_t(0)})
        handles.push_back(pipeline->add_request(id, prompt, greedy(4)));
    EXPECT_THROW(pipeline->add_request(uint64_t(1) << 63, prompt, greedy(4)), InvalidArgument);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(answer(*pipeline), expected);
    while (pipeline->has_non_finished_requests()) pipeline->step();
    for (const Handle& handle : handles)
        EXPECT_EQ(handle->outputs_so_far().at(0).generated_ids, expected);
}

TEST_F(PipelineThreads, AForkedChildIsRefusedAndEnds) {
    const auto pipeline = make();
    answer(*pipeline);
    pipeline->start();
    const Handle handle = pipeline->add_request(1, prompt, greedy(2));
    wait_until_over(handle);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        alarm(30);  // a hang ends the child by a signal
        const auto refuses = [](const std::function<void()>& call) {
            try {
                call();
            } catch (const std::runtime_error&) {
                return true;
            }
            return false;
        };
        bool ok = refuses([&] { pipeline->step(); });
        ok = ok && refuses([&] { pipeline->generate(prompts, {greedy(1)}); });
        ok = ok && refuses([&] { pipeline->add_request(9, prompt, greedy(1)); });
        ok = ok && refuses([&] { pipeline->start(); });
        ok = ok && refuses([&] { pipeline->get_statistics(); });
        ok = ok && refuses([&] { pipeline->get_prefix_cache().num_tokens(); });
        ok = ok && refuses([&] { pipeline->get_tokenizer().encode("text"); });
        ok = ok && refuses([&] { handle->read_available(); });
        ok = ok && refuses([&] { handle->cancel(); });
        pipeline->stop();
        _exit(ok ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    pipeline->stop();
    answer(*pipeline);
}

/// What a child that `call` forks in a callback ends with, 0 if it is told by an exception.
int status_of_child(const std::function<void(const std::function<void()>&)>& call) {
    const pid_t parent = getpid();
    pid_t child = 0;
    try {
        call([&] {
            if (child != 0 || getpid() != parent) return;
            child = fork();
            if (child == 0) alarm(30);  // a hang ends it by a signal
        });
    } catch (const std::runtime_error&) {
        if (getpid() != parent) _exit(0);
        throw;
    }
    if (getpid() != parent) _exit(1);
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return status;
}

TEST_F(PipelineThreads, AChildForkedInACallbackIsToldWhenTheCallbackReturns) {
    const auto policy = std::make_shared<AskingPolicy>();
    const auto pipeline = make_with(policy);
    for (const bool started : {false, true}) {
        if (started) pipeline->start();
        EXPECT_EQ(status_of_child([&](const auto& fork_once) {
                      pipeline->generate(prompts, {greedy(20)},
                                         TextStreamer::Callback([&](const std::string&) {
                                             fork_once();
                                             return StreamingStatus::RUNNING;
                                         }));
                  }),
                  0)
            << started;
    }
    pipeline->stop();
    // A step that goes on in the child, to the other sequence, would wait for threads of OpenVINO.
    EXPECT_EQ(status_of_child(
                  [&, parent = getpid(), last_layer = size_t(0)](const auto& fork_once) mutable {
                      policy->ask = [&] {
                          if (getpid() != parent && policy->layer <= last_layer) _exit(3);
                          last_layer = policy->layer;
                          fork_once();
                      };
                      pipeline->generate({prompt, prompt}, {greedy(300), greedy(300)});
                  }),
              0);
    policy->ask = nullptr;
    // In a callback of the pipeline's own thread the child is that thread, which ends.
    EXPECT_EQ(status_of_child([&](const auto& fork_once) {
                  in_callback_of_service(pipeline, [&](const Handle&) { fork_once(); });
                  pipeline->stop();
              }),
              0);
    answer(*pipeline);
}

}  // namespace
}  // namespace pagewheel
