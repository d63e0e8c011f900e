// Many threads on one pipeline whose pool is too small. PAGEWHEEL_TEST_TINY_MODEL names the folder
// of a model of which thousands of steps take seconds (scripts/run_tests makes it); token ids 4 to
// 266 are plain.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <random>
#include <thread>

#include "pagewheel/errors.hpp"
#include "pagewheel/pagewheel.hpp"

namespace pagewheel {
namespace {

constexpr size_t num_requests = 500, num_threads = 5, num_blocks = 40;
using Tokens = std::vector<int64_t>;
using Handle = std::shared_ptr<GenerationHandle>;

size_t below(std::mt19937& random, size_t n) {
    return std::uniform_int_distribution<size_t>(0, n - 1)(random);
}

GenerationConfig greedy_or_beams(size_t count, size_t num_beams = 1) {
    GenerationConfig config;
    config.max_new_tokens = count;
    config.ignore_eos = true;
    config.num_beams = num_beams;
    return config;
}

/// Prompts with shared beginnings, of 1 to 280 tokens, how many tokens each is to get, and by how
/// many beams.
struct Requests {
    std::vector<Tokens> prompts;
    std::vector<size_t> lengths, beams;

    explicit Requests(std::mt19937& random) {
        const auto token = [&] { return int64_t(4 + below(random, 263)); };
        Tokens stem(200);
        for (int64_t& one : stem) one = token();
        for (size_t i = 0; i < num_requests; ++i) {
            Tokens prompt(stem.begin(), stem.begin() + long(below(random, 200)));
            for (size_t own = 1 + below(random, 80); own > 0; --own) prompt.push_back(token());
            prompts.push_back(std::move(prompt));
            lengths.push_back(1 + below(random, 60));
            beams.push_back(below(random, 6) == 0 ? 3 : 1);
        }
    }
};

/// Cancels what it is given, each at a moment of its own, on a thread of its own.
class Canceller {
public:
    Canceller() : m_thread([this] { run(); }) {}
    ~Canceller() { join(); }
    void add(Handle handle) {
        const std::lock_guard lock(m_mutex);
        m_handles.push_back(std::move(handle));
    }
    /// When all were cancelled.
    void join() {
        m_closed = true;
        if (m_thread.joinable()) m_thread.join();
    }

private:
    void run() {
        std::mt19937 random(2);
        for (;;) {
            std::this_thread::sleep_for(std::chrono::microseconds(below(random, 3000)));
            const bool closed = m_closed;
            const std::lock_guard lock(m_mutex);
            if (m_handles.empty() && closed) return;
            if (m_handles.empty()) continue;
            std::swap(m_handles[below(random, m_handles.size())], m_handles.back());
            m_handles.back()->cancel();
            m_handles.pop_back();
        }
    }

    std::mutex m_mutex;
    std::vector<Handle> m_handles;
    std::atomic<bool> m_closed{false};
    std::thread m_thread;
};

class PipelineStress : public testing::TestWithParam<const char*> {
protected:
    void SetUp() override {
        if (!std::getenv("PAGEWHEEL_TEST_TINY_MODEL"))
            GTEST_SKIP() << "PAGEWHEEL_TEST_TINY_MODEL is not set";
    }
    static ContinuousBatchingPipeline pipeline(const SchedulerConfig& scheduler) {
        // In f32 a request's tokens do not depend on what else is in the batch.
        return {std::getenv("PAGEWHEEL_TEST_TINY_MODEL"),
                scheduler,
                "CPU",
                {{"INFERENCE_PRECISION_HINT", "f32"},
                 {"KV_CACHE_PRECISION", "f32"},
                 {"attention_backend", GetParam()}}};
    }
    /// What each request gets where nothing disturbs it.
    static std::vector<Tokens> undisturbed(const Requests& requests) {
        SchedulerConfig scheduler;
        scheduler.num_kv_blocks = 8000;
        auto reference = pipeline(scheduler);
        std::vector<Handle> handles;
        for (size_t i = 0; i < num_requests; ++i)
            handles.push_back(reference.add_request(
                i, requests.prompts[i], greedy_or_beams(requests.lengths[i], requests.beams[i])));
        while (reference.has_non_finished_requests()) reference.step();
        std::vector<Tokens> tokens;
        for (const Handle& handle : handles)
            tokens.push_back(handle->outputs_so_far().at(0).generated_ids);
        return tokens;
    }
};

TEST_P(PipelineStress, FortyBlocksServe500RequestsOfWhichAThirdIsCancelledByOtherThreads) {
    std::mt19937 random(1);
    const Requests requests(random);
    const std::vector<Tokens> expected = undisturbed(requests);

    SchedulerConfig scheduler;
    scheduler.num_kv_blocks = num_blocks;
    scheduler.max_num_batched_tokens = 64;
    scheduler.enable_prefix_caching = true;
    auto served = pipeline(scheduler);
    served.start();
    std::vector<Handle> handles(num_requests);
    std::atomic<size_t> num_refused{0};
    Canceller canceller;
    const auto work = [&](size_t thread) {
        std::mt19937 own(unsigned(10 + thread));
        for (size_t i = thread; i < num_requests; i += num_threads) {
            if (i % 25 == 0) {  // never fits
                const Tokens too_long(num_blocks * 32, 5);
                EXPECT_THROW(served.add_request(1000 + i, too_long, greedy_or_beams(1)),
                             InvalidArgument);
                ++num_refused;
            }
            GenerationConfig config = greedy_or_beams(requests.lengths[i], requests.beams[i]);
            config.priority = int(below(own, 3));
            handles[i] = served.add_request(i, requests.prompts[i], config);
            if (below(own, 3) == 0) canceller.add(handles[i]);
            if (below(own, 4) > 0) continue;
            // Reads along what came so far of an earlier one, to its end or not.
            const Handle& earlier = handles[i - below(own, i / num_threads + 1) * num_threads];
            for (size_t reads = below(own, 20); reads > 0; --reads) {
                earlier->wait(std::chrono::milliseconds(2));
                earlier->read_available();
                if (earlier->get_status() != GenerationStatus::RUNNING) break;
            }
        }
    };
    std::vector<std::thread> threads;
    for (size_t t = 0; t < num_threads; ++t) threads.emplace_back(work, t);
    for (std::thread& thread : threads) thread.join();
    canceller.join();
    while (served.has_non_finished_requests()) served.step();
    served.stop();

    EXPECT_EQ(num_refused, num_requests / 25);
    size_t num_cancelled = 0;
    for (size_t i = 0; i < num_requests; ++i) {
        const Tokens tokens = handles[i]->outputs_so_far().at(0).generated_ids;
        if (handles[i]->get_status() == GenerationStatus::FINISHED) {
            EXPECT_EQ(tokens, expected[i]) << "request " << i;
            continue;
        }
        ASSERT_EQ(handles[i]->get_status(), GenerationStatus::CANCEL);
        ++num_cancelled;
        ASSERT_LT(tokens.size(), expected[i].size());
        // What a search has found before its end may be lost again.
        if (requests.beams[i] > 1) continue;
        EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), expected[i].begin())) << i;
    }
    EXPECT_GT(num_cancelled, num_requests / 10);
    EXPECT_LT(num_cancelled, num_requests / 2);
    served.get_prefix_cache().clear();
    served.step();
    const PipelineStatistics statistics = served.get_statistics();
    EXPECT_GT(statistics.num_preemptions, 0u);
    EXPECT_EQ(statistics.num_free_blocks, num_blocks);
}

INSTANTIATE_TEST_SUITE_P(Backends, PipelineStress, testing::Values("openvino", "native"));

}  // namespace
}  // namespace pagewheel
