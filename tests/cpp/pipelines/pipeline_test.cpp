// Runs a real model, so that the sanitizers see the whole engine: PAGEWHEEL_TEST_MODEL names a
// model folder (scripts/run_tests converts the default model and sets it).
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "pagewheel/errors.hpp"
#include "pagewheel/pagewheel.hpp"

namespace pagewheel {
namespace {

class Pipeline : public testing::Test {
protected:
    void SetUp() override {
        if (!std::getenv("PAGEWHEEL_TEST_MODEL")) GTEST_SKIP() << "PAGEWHEEL_TEST_MODEL is not set";
    }
    static std::string model() { return std::getenv("PAGEWHEEL_TEST_MODEL"); }
    static GenerationConfig tokens(size_t n) {
        GenerationConfig config;
        config.max_new_tokens = n;
        config.ignore_eos = true;
        return config;
    }
};

TEST_F(Pipeline, ChatsWithoutPython) {
    for (const char* backend : {"openvino", "native"}) {
        LLMPipeline pipeline(model(), "CPU", {{"attention_backend", backend}});
        ChatHistory history;
        history.append("user", "Name the capital city of France.");
        const auto results = pipeline.generate(history, tokens(8));
        EXPECT_NE(results.texts.at(0).find("Paris"), std::string::npos) << results.texts[0];
        EXPECT_EQ(results.finish_reasons.at(0), GenerationFinishReason::LENGTH);
        EXPECT_EQ(results.perf_metrics.get_num_generated_tokens(), 8u);
    }
}

TEST_F(Pipeline, RendersChatsByTheProgramsRenderer) {
    Tokenizer tokenizer(model());
    ChatHistory history;
    history.append("user", "Hello");
    const std::string plain = tokenizer.apply_chat_template(history, true);
    EXPECT_NE(plain.find("Hello"), std::string::npos);
    ChatTemplateInputs seen;
    tokenizer.set_chat_template_renderer([&](const ChatTemplateInputs& inputs) {
        seen = inputs;
        return std::string("rendered elsewhere");
    });
    EXPECT_EQ(tokenizer.apply_chat_template(history, false, "{{ mine }}"), "rendered elsewhere");
    EXPECT_EQ(seen.chat_template, "{{ mine }}");
    EXPECT_NE(seen.messages_json.find("Hello"), std::string::npos);
    EXPECT_FALSE(seen.add_generation_prompt);
    tokenizer.set_chat_template_renderer(nullptr);
    EXPECT_EQ(tokenizer.apply_chat_template(history, true), plain);
}

TEST_F(Pipeline, TakesTemplatesAndRenderersFromOtherThreads) {
    Tokenizer tokenizer(model());
    const std::string templates[] = {std::string(100000, 'a'), std::string(200000, 'b')};
    const auto render = [](const ChatTemplateInputs& inputs) { return inputs.chat_template; };
    tokenizer.set_chat_template(templates[0]);
    tokenizer.set_chat_template_renderer(render);
    std::atomic<bool> is_over{false};
    std::thread setter([&] {
        for (size_t i = 0; !is_over; ++i) {
            tokenizer.set_chat_template(templates[i % 2]);
            tokenizer.set_chat_template_renderer(render);
        }
    });
    ChatHistory history;
    history.append("user", "Hello");
    size_t num_torn = 0;
    for (size_t i = 0; i < 2000; ++i) {
        const std::string text = tokenizer.apply_chat_template(history, true);
        num_torn += text != templates[0] && text != templates[1];
    }
    is_over = true;
    setter.join();
    EXPECT_EQ(num_torn, 0u);
}

TEST_F(Pipeline, RefusesTemplatesThatAreNotUtf8) {
    const Tokenizer tokenizer(model());
    EXPECT_THROW(tokenizer.apply_chat_template(ChatHistory(), true, "{{ '\xFF' }}"),
                 InvalidArgument);
}

TEST_F(Pipeline, TokensBeyondTheVocabularyHaveNoText) {
    const Tokenizer tokenizer(model());
    const std::vector<int64_t> plain = tokenizer.encode("a plain text");
    std::vector<int64_t> padded = plain;
    padded.insert(padded.begin() + 1, int64_t(tokenizer.get_vocab_vector().size()));
    EXPECT_EQ(tokenizer.decode(padded), tokenizer.decode(plain));
}

TEST_F(Pipeline, RefusesBadInputAndGoesOn) {
    LLMPipeline pipeline(model());
    EXPECT_THROW(pipeline.generate("",
                                   [&] {
                                       auto config = tokens(1);
                                       config.apply_chat_template = false;
                                       return config;
                                   }()),
                 InvalidArgument);
    EXPECT_THROW(pipeline.generate("\xFF\xFE", tokens(1)), InvalidArgument);
    EXPECT_THROW(pipeline.generate("x", tokens(0)), InvalidArgument);
    EXPECT_THROW(pipeline.generate(
                     "x", tokens(4),
                     [](const std::string&) -> StreamingStatus { throw std::range_error("mine"); }),
                 std::range_error);
    EXPECT_EQ(pipeline.get_metrics().requests, 0u);
    EXPECT_FALSE(pipeline.generate("x", tokens(3)).texts.at(0).empty());
    EXPECT_EQ(pipeline.get_metrics().cache_usage, 0.0f);
}

TEST_F(Pipeline, TakesRequestsAndCancelsFromOtherThreads) {
    SchedulerConfig scheduler;
    scheduler.num_kv_blocks = 12;
    ContinuousBatchingPipeline pipeline(model(), scheduler);
    std::vector<std::shared_ptr<GenerationHandle>> handles(24);
    std::vector<std::thread> threads;
    for (size_t t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
            for (size_t i = t; i < handles.size(); i += 4) {
                handles[i] =
                    pipeline.add_request(i, std::vector<int64_t>(10 + i * 5, 100), tokens(20));
                if (i % 3 == 0) handles[i]->cancel();
            }
        });
    for (int i = 0; i < 20; ++i) pipeline.step();
    for (std::thread& thread : threads) thread.join();
    while (pipeline.has_non_finished_requests()) pipeline.step();
    for (size_t i = 0; i < handles.size(); ++i) {
        const bool cancelled = handles[i]->get_status() == GenerationStatus::CANCEL;
        if (i % 3 != 0) {
            EXPECT_FALSE(cancelled);
            EXPECT_EQ(handles[i]->outputs_so_far().at(0).generated_ids.size(), 20u);
        }
    }
    EXPECT_EQ(pipeline.get_metrics().cache_usage, 0.0f);
}

TEST_F(Pipeline, ServesManyThreadsWhileAThreadOfItsOwnSteps) {
    SchedulerConfig scheduler;
    scheduler.num_kv_blocks = 24;
    scheduler.enable_prefix_caching = true;
    scheduler.max_queue = 30;
    ContinuousBatchingPipeline pipeline(model(), scheduler);
    pipeline.start();
    std::atomic<uint64_t> next_id{0};
    std::atomic<size_t> num_notified{0}, num_finished{0}, num_refused{0};
    const auto work = [&](size_t thread) {
        for (size_t i = 0; i < 8; ++i) {
            std::vector<int64_t> prompt(20 + thread * 10, 100);
            GenerationConfig config = tokens(6);
            config.priority = int(i % 3);
            if (i == 5) config.timeout = 0.01f;
            std::shared_ptr<GenerationHandle> handle;
            try {
                handle = pipeline.add_request(next_id++, prompt, config);
            } catch (const QueueFull&) {
                ++num_refused;
                continue;
            }
            handle->notify_once([&] { ++num_notified; });
            if (i % 4 == 3) handle->cancel();
            while (handle->get_status() == GenerationStatus::RUNNING) {
                handle->wait(std::chrono::seconds(1));
                handle->read_available();
            }
            if (handle->get_status() != GenerationStatus::FINISHED) continue;
            ++num_finished;
            EXPECT_EQ(handle->outputs_so_far().at(0).generated_ids.size(), 6u);
        }
    };
    std::vector<std::thread> threads;
    for (size_t t = 0; t < 6; ++t) threads.emplace_back(work, t);
    threads.emplace_back([&] {
        PrefixCache cache = pipeline.get_prefix_cache();
        for (int i = 0; i < 10; ++i) {
            cache.num_tokens();
            pipeline.get_statistics();
            pipeline.get_metrics();
            EXPECT_EQ(pipeline.get_cache_view().blocks.size(), 24u);
            if (i % 3 == 0) cache.clear();
            // Looks again after the next step, if there is one.
            const size_t step = pipeline.get_statistics().num_steps;
            while (pipeline.get_statistics().num_steps == step && num_notified + num_refused < 48)
                std::this_thread::yield();
        }
    });
    for (std::thread& thread : threads) thread.join();
    while (pipeline.has_non_finished_requests()) pipeline.step();
    pipeline.stop();
    pipeline.step();
    EXPECT_GT(num_finished, 20u);
    EXPECT_EQ(num_notified + num_refused, 48u);
    const PipelineStatistics statistics = pipeline.get_statistics();
    EXPECT_EQ(statistics.num_used_blocks, 0u);
    EXPECT_EQ(statistics.num_free_blocks + statistics.num_cached_blocks, 24u);
}

TEST_F(Pipeline, SamplesShareThePromptAndDiffer) {
    // In f32, where it is the same whether the prompt comes from the prefix cache or not.
    LLMPipeline pipeline(model(), "CPU",
                         {{"INFERENCE_PRECISION_HINT", "f32"}, {"KV_CACHE_PRECISION", "f32"}});
    GenerationConfig config = tokens(12);
    config.do_sample = true;
    config.num_return_sequences = 4;
    config.rng_seed = 7;
    const auto first = pipeline.generate("Tell me a story.", config).texts;
    EXPECT_EQ(std::set<std::string>(first.begin(), first.end()).size(), 4u);
    EXPECT_EQ(pipeline.generate("Tell me a story.", config).texts, first);
}

}  // namespace
}  // namespace pagewheel
