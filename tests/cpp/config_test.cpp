#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "pagewheel/generation_config.hpp"
#include "pagewheel/perf_metrics.hpp"
#include "pagewheel/scheduler_config.hpp"

namespace pagewheel {
namespace {

/// The message of the std::invalid_argument that `function` throws.
template <class Function>
std::string refusal(Function&& function) {
    try {
        function();
    } catch (const std::invalid_argument& error) {
        return error.what();
    }
    return "nothing was refused";
}

TEST(GenerationConfig, DefaultsAreValid) {
    EXPECT_NO_THROW(GenerationConfig().validate());
}

TEST(GenerationConfig, RefusalsNameParameterValueAndRange) {
    const auto refused = [](auto&& change) {
        GenerationConfig config;
        config.do_sample = true;
        change(config);
        return refusal([&] { config.validate(); });
    };
    EXPECT_EQ(refused([](auto& c) { c.max_new_tokens = 0; }),
              "max_new_tokens is 0; allowed: 1 or more");
    EXPECT_EQ(refused([](auto& c) { c.top_p = 2; }),
              "top_p is 2; allowed: greater than 0, at most 1");
    EXPECT_EQ(refused([](auto& c) { c.top_p = 0; }),
              "top_p is 0; allowed: greater than 0, at most 1");
    EXPECT_NE(refused([](auto& c) { c.temperature = -1; }).find("temperature is -1"),
              std::string::npos);
    EXPECT_NE(refused([](auto& c) { c.temperature = NAN; }).find("temperature is nan"),
              std::string::npos);
    EXPECT_NE(refused([](auto& c) { c.min_p = 1; }).find("min_p is 1"), std::string::npos);
    EXPECT_NE(refused([](auto& c) { c.repetition_penalty = 0; }).find("repetition_penalty is 0"),
              std::string::npos);
    EXPECT_EQ(refused([](auto& c) { c.num_beams = 4; }),
              "num_beams is 4 and do_sample is true; allowed: one of beam search and sampling");
    EXPECT_NE(refused([](auto& c) { c.stop_strings = {""}; }).find("stop_strings"),
              std::string::npos);
    EXPECT_NE(refused([](auto& c) {
                  c.do_sample = false;
                  c.num_return_sequences = 2;
              }).find("num_return_sequences is 2"),
              std::string::npos);
}

TEST(GenerationConfig, UpdatesFromJsonAllOrNothing) {
    GenerationConfig config;
    config.update_from_json(
        R"({"max_new_tokens": 5, "stop_strings": ["a"], "top_p": 1, "rng_seed": 3})");
    EXPECT_EQ(config.max_new_tokens, 5u);
    EXPECT_EQ(config.stop_strings, std::set<std::string>{"a"});
    EXPECT_EQ(config.rng_seed, 3u);
    EXPECT_NE(refusal([&] {
                  config.update_from_json(R"({"max_new_tokens": 7, "nonsense": 1})");
              }).find("'nonsense'"),
              std::string::npos);
    EXPECT_EQ(config.max_new_tokens, 5u);
    EXPECT_NE(refusal([&] { config.update_from_json(R"({"top_k": 1.5})"); }).find("top_k"),
              std::string::npos);
    EXPECT_NE(refusal([&] { config.update_from_json(R"({"top_k": -1})"); }).find("top_k"),
              std::string::npos);
    EXPECT_NE(refusal([&] { config.update_from_json("[]"); }).find("object"), std::string::npos);
}

TEST(GenerationConfig, ReadsAFileAndLeavesOutWhatItDoesNotKnow) {
    const std::string path = testing::TempDir() + "generation_config.json";
    std::ofstream(path) << R"({"eos_token_id": [2, 0], "transformers_version": "5", "top_p": 0.5})";
    const GenerationConfig config(path);
    EXPECT_EQ(config.eos_token_id, 2);
    EXPECT_TRUE(config.is_stop_token(0));
    EXPECT_FALSE(config.is_stop_token(1));
    EXPECT_FLOAT_EQ(config.top_p, 0.5f);
    std::ofstream(path) << "{ broken";
    EXPECT_THROW(GenerationConfig{std::filesystem::path(path)}, std::invalid_argument);
    EXPECT_THROW(GenerationConfig{std::filesystem::path("/does/not/exist.json")},
                 std::invalid_argument);
}

TEST(SchedulerConfig, RefusesZeroLimits) {
    SchedulerConfig config;
    EXPECT_NO_THROW(config.validate());
    config.max_num_batched_tokens = 0;
    EXPECT_NE(refusal([&] { config.validate(); }).find("max_num_batched_tokens is 0"),
              std::string::npos);
    config.max_num_batched_tokens = 1;
    config.use_cache_eviction = true;
    EXPECT_NO_THROW(config.validate());
    config.cache_eviction_config.score_pooling = 2;
    EXPECT_NE(refusal([&] { config.validate(); }).find("score_pooling is 2"), std::string::npos);
    config.use_cache_eviction = false;
    config.max_num_seqs = 0;
    EXPECT_NE(refusal([&] { config.validate(); }).find("max_num_seqs is 0"), std::string::npos);
}

TEST(PerfMetrics, AreMeansInMilliseconds) {
    PerfMetrics metrics;
    EXPECT_FLOAT_EQ(metrics.get_ttft().mean, -1.0f);
    metrics.raw_metrics.m_durations = {1000, 3000};
    EXPECT_FLOAT_EQ(metrics.get_tpot().mean, 2.0f);
    EXPECT_FLOAT_EQ(metrics.get_tpot().std, 1.0f);
    EXPECT_FLOAT_EQ(metrics.get_throughput().mean, 500.0f);
    PerfMetrics other;
    other.raw_metrics.m_durations = {5000};
    other.num_generated_tokens = 4;
    metrics += other;
    EXPECT_FLOAT_EQ(metrics.get_tpot().mean, 3.0f);
    EXPECT_EQ(metrics.get_num_generated_tokens(), 4u);
}

}  // namespace
}  // namespace pagewheel
