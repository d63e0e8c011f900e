// How many threads a model gets, and what runs on them before it is compiled.
#include "graph/inference_threads.hpp"

#include <gtest/gtest.h>
#include <tbb/task_arena.h>

#include <stdexcept>
#include <thread>

#include "model/openvino_core.hpp"

namespace pagewheel {
namespace {

InferenceThreads choose(const ov::AnyMap& properties, std::optional<double> quota) {
    return choose_threads(openvino_core(),
                          parse_compile_options("CPU", properties, nullptr, {"CPU"}), quota);
}

size_t default_count() {
    return choose({}, {}).count;
}

bool says(const InferenceThreads& threads, const std::string& text) {
    return threads.why.find(text) != std::string::npos;
}

TEST(InferenceThreads, AreOpenVinosWithoutAQuota) {
    const InferenceThreads threads = choose({}, {});
    EXPECT_GE(threads.count, 1u);
    EXPECT_LE(threads.count, std::thread::hardware_concurrency());
    EXPECT_TRUE(threads.properties.empty());
    EXPECT_TRUE(says(threads, "physical cores")) << threads.why;
}

TEST(InferenceThreads, AQuotaThatAllowsAllChangesNothing) {
    EXPECT_TRUE(choose({}, double(default_count())).properties.empty());
    EXPECT_TRUE(choose({}, 1000.0).properties.empty());
}

TEST(InferenceThreads, ASmallerQuotaIsRoundedAndBindsNothing) {
    if (default_count() == 1) GTEST_SKIP() << "one core";
    const InferenceThreads threads = choose({}, 0.3);
    EXPECT_EQ(threads.count, 1u);
    EXPECT_EQ(threads.properties.at("INFERENCE_NUM_THREADS").as<int>(), 1);
    EXPECT_FALSE(threads.properties.at("ENABLE_CPU_PINNING").as<bool>());
    EXPECT_TRUE(says(threads, "quota of 0.3")) << threads.why;
    // 0 is OpenVINO's word for its default.
    EXPECT_EQ(choose({{"INFERENCE_NUM_THREADS", 0}}, 0.3).count, 1u);
    EXPECT_EQ(choose({}, double(default_count()) - 0.5).count, default_count());
    EXPECT_EQ(choose({}, double(default_count()) - 0.6).count, default_count() - 1);
    EXPECT_EQ(choose({{"ENABLE_CPU_PINNING", true}}, 0.3).properties.count("ENABLE_CPU_PINNING"),
              0u);
}

TEST(InferenceThreads, TheUsersNumberStaysHoweverSmallTheQuota) {
    const InferenceThreads threads = choose({{"INFERENCE_NUM_THREADS", 64}}, 0.5);
    EXPECT_TRUE(threads.properties.empty());
    EXPECT_LE(threads.count, std::thread::hardware_concurrency());
    EXPECT_TRUE(says(threads, "INFERENCE_NUM_THREADS is 64")) << threads.why;
    EXPECT_EQ(choose({{"INFERENCE_NUM_THREADS", 1}}, 0.5).count, 1u);
    EXPECT_TRUE(choose({{"NUM_STREAMS", 1}}, 0.5).properties.empty());
}

TEST(InferenceArena, RunsOnItsThreads) {
    InferenceArena arena(openvino_core(), {{"INFERENCE_NUM_THREADS", 1}});
    EXPECT_EQ(arena.num_threads(), 1u);
    int places = 0;
    std::thread::id id;
    arena.run([&] {
        places = tbb::this_task_arena::max_concurrency();
        id = std::this_thread::get_id();
    });
    EXPECT_EQ(places, 1);
    EXPECT_NE(id, std::this_thread::get_id());
    InferenceArena all(openvino_core(), {});
    all.run([&] { places = tbb::this_task_arena::max_concurrency(); });
    EXPECT_EQ(size_t(places), all.num_threads());
}

TEST(InferenceArena, ThrowsWhatIsThrownAndRunsOn) {
    InferenceArena arena(openvino_core(), {});
    EXPECT_THROW(arena.run([] { throw std::range_error("mine"); }), std::range_error);
    int runs = 0;
    arena.run([&] { ++runs; });
    EXPECT_EQ(runs, 1);
}

TEST(InferenceArena, RefusesWhatOpenVinoRefuses) {
    EXPECT_THROW(InferenceArena(openvino_core(), {{"INFERENCE_NUM_THREADS", "many"}}),
                 ov::Exception);
}

}  // namespace
}  // namespace pagewheel
