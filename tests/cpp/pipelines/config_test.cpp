#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "pagewheel/errors.hpp"
#include "pagewheel/generation_config.hpp"
#include "pagewheel/perf_metrics.hpp"
#include "pagewheel/scheduler_config.hpp"

namespace pagewheel {
namespace {

/// The message of the InvalidArgument that `function` throws.
template <class Function>
std::string refusal(Function&& function) {
    try {
        function();
    } catch (const InvalidArgument& error) {
        return error.what();
    }
    return "nothing was refused";
}

/// Why a config that samples is refused once it is changed.
template <class Change>
std::string refused(const Change& change) {
    GenerationConfig config;
    config.do_sample = true;
    change(config);
    return refusal([&] { config.validate(); });
}

TEST(GenerationConfig, SomethingMustEndIt) {
    EXPECT_NO_THROW(GenerationConfig().validate_values());
    EXPECT_EQ(refusal([] { GenerationConfig().validate(); }).find("nothing ends the generation"),
              0u);
    for (const auto& change : std::vector<std::function<void(GenerationConfig&)>>{
             [](auto& c) { c.max_new_tokens = 1; }, [](auto& c) { c.max_length = 1; },
             [](auto& c) { c.set_eos_token_id(0); }, [](auto& c) { c.stop_token_ids = {0}; },
             [](auto& c) { c.stop_strings = {"a"}; }}) {
        GenerationConfig config;
        change(config);
        EXPECT_NO_THROW(config.validate());
        config.ignore_eos = true;
        const bool has_limit = std::min(config.max_new_tokens, config.max_length) == 1;
        EXPECT_EQ(refusal([&] { config.validate(); }).find("ignore_eos is true") == 0, !has_limit);
    }
}

TEST(GenerationConfig, WhatDoesNotApplyIsNotLookedAt) {
    GenerationConfig config;
    config.max_new_tokens = 1;
    config.temperature = config.top_p = 0;
    config.min_p = -1;
    config.num_beam_groups = 0;
    config.diversity_penalty = 1;
    EXPECT_NO_THROW(config.validate());
    config.do_sample = true;
    EXPECT_NE(refusal([&] { config.validate(); }).find("temperature is 0"), std::string::npos);
    config.do_sample = false;
    config.num_beams = 2;
    EXPECT_NE(refusal([&] { config.validate(); }).find("num_beam_groups is 0"), std::string::npos);
}

TEST(GenerationConfig, EveryEosTokenStops) {
    GenerationConfig config;
    config.set_eos_token_id(3);
    config.set_eos_token_id(5);
    EXPECT_EQ(config.eos_token_id, 5);
    EXPECT_EQ(config.stop_token_ids, (std::set<int64_t>{3, 5}));
    config.stop_token_ids.insert(-1);
    EXPECT_EQ(refusal([&] { config.validate(); }), "stop_token_ids holds -1; allowed: 0 or more");
}

TEST(GenerationConfig, RefusalsNameParameterValueAndRange) {
    EXPECT_EQ(refused([](auto& c) { c.max_new_tokens = 0; }),
              "max_new_tokens is 0; allowed: 1 or more, with echo 0 too");
    EXPECT_EQ(refused([](auto& c) { c.top_p = 2; }),
              "top_p is 2; allowed: greater than 0, at most 1");
    EXPECT_EQ(refused([](auto& c) { c.top_p = 0; }),
              "top_p is 0; allowed: greater than 0, at most 1");
    EXPECT_NE(refused([](auto& c) { c.temperature = -1; }).find("temperature is -1"),
              std::string::npos);
    EXPECT_NE(refused([](auto& c) { c.temperature = NAN; }).find("temperature is nan"),
              std::string::npos);
    EXPECT_NE(refused([](auto& c) { c.min_p = 1; }).find("min_p is 1"), std::string::npos);
    EXPECT_NE(refused([](auto& c) { c.typical_p = 0; }).find("typical_p is 0"), std::string::npos);
    EXPECT_NE(refused([](auto& c) { c.top_n_sigma = NAN; }).find("top_n_sigma is nan"),
              std::string::npos);
    EXPECT_NE(refused([](auto& c) { c.xtc_probability = 1.5; }).find("xtc_probability is 1.5"),
              std::string::npos);
    EXPECT_NE(refused([](auto& c) { c.mirostat = 1; }).find("mirostat is 1"), std::string::npos);
    EXPECT_NE(refused([](auto& c) {
                  c.mirostat = 2;
                  c.mirostat_tau = 0;
              }).find("mirostat_tau is 0"),
              std::string::npos);
    EXPECT_NE(refused([](auto& c) { c.dynatemp_range = -1; }).find("dynatemp_range is -1"),
              std::string::npos);
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

/// One value for each parameter, other than its default.
nlohmann::json one_of_each() {
    const std::map<std::string, const char*> by_type{{"bool", "true"},
                                                     {"int", "3"},
                                                     {"int | None", "9"},
                                                     {"float", "0.5"},
                                                     {"float | None", "2.5"},
                                                     {"str", R"("a")"},
                                                     {"set[int]", "[8]"},
                                                     {"set[str]", R"(["a"])"},
                                                     {"StopCriteria", R"("NEVER")"},
                                                     {"dict[int, float]", R"({"3": -1.5})"},
                                                     {"list[list[int]]", "[[1, 2]]"}};
    // Of those whose default, or what is allowed, is another than their type's.
    std::map<std::string, const char*> values{{"skip_special_tokens", "false"},
                                              {"apply_chat_template", "false"},
                                              {"cache_eviction", "false"},
                                              {"dry_base", "2"},
                                              {"mirostat", "2"}};
    nlohmann::json all;
    for (const GenerationParameter& each : generation_parameters())
        all[each.name] =
            nlohmann::json::parse(values.emplace(each.name, by_type.at(each.type)).first->second);
    return all;
}

bool equal(const GenerationConfig& a, const GenerationConfig& b) {
    bool all = true;
#define PAGEWHEEL_PARAMETER(type, name, initial, condition, allowed, help) \
    all = all && a.name == b.name;
#include "pagewheel/generation_parameters.def"
    return all;
}

TEST(GenerationConfig, EveryParameterOfTheTableIsDescribedReadAndChecked) {
    const auto given = one_of_each();
    for (const GenerationParameter& parameter : generation_parameters()) {
        SCOPED_TRACE(parameter.name);
        for (const std::string& text : {parameter.section, parameter.type, parameter.help})
            EXPECT_NE(text, "");
        GenerationConfig config;
        ASSERT_NO_THROW(parameter.check(config));
        config.update_from_json(nlohmann::json{{parameter.name, given.at(parameter.name)}}.dump());
        EXPECT_FALSE(equal(config, GenerationConfig()));
        EXPECT_NO_THROW(parameter.check(config));
    }
}

TEST(GenerationConfig, ACheckIsOfItsParameterAlone) {
    GenerationConfig config;
    config.top_p = 2;
    config.min_p = -1;
    for (const GenerationParameter& parameter : generation_parameters()) {
        const std::string message = refusal([&] { parameter.check(config); });
        if (parameter.name == "top_p")
            EXPECT_EQ(message, "top_p is 2; allowed: greater than 0, at most 1");
        else if (parameter.name == "min_p")
            EXPECT_EQ(message, "min_p is -1; allowed: from 0 to less than 1");
        else
            EXPECT_EQ(message, "nothing was refused");
    }
}

TEST(GenerationConfig, NullIsEveryParametersDefault) {
    const auto given = one_of_each();
    GenerationConfig all;
    all.update_from_json(given.dump());
    for (const auto& [key, value] : given.items()) {
        GenerationConfig changed;
        changed.update_from_json(nlohmann::json{{key, value}}.dump());
        EXPECT_FALSE(equal(changed, GenerationConfig())) << key;
        if (key == "eos_token_id") changed.stop_token_ids.clear();
        changed.update_from_json(nlohmann::json{{key, nullptr}}.dump());
        EXPECT_TRUE(equal(changed, GenerationConfig())) << key;
    }
    nlohmann::json nulls = given;
    for (auto& value : nulls) value = nullptr;
    nulls["early_stopping"] = nullptr;
    all.update_from_json(nulls.dump());
    EXPECT_TRUE(equal(all, GenerationConfig()));
}

TEST(GenerationConfig, TakesNumbersExactlyOrRefusesThem) {
    const auto refused = [](const char* key, const char* value) {
        GenerationConfig config;
        const std::string message = refusal(
            [&] { config.update_from_json(std::string("{\"") + key + "\": " + value + "}"); });
        EXPECT_TRUE(equal(config, GenerationConfig())) << key << ' ' << value;
        EXPECT_EQ(message.find(std::string("generation parameter '") + key + "' is "), 0u)
            << message;
        EXPECT_NE(message.find("; allowed: "), std::string::npos) << message;
        return message;
    };
    for (const char* key : {"max_new_tokens", "max_length", "min_new_tokens", "eos_token_id",
                            "priority", "logprobs", "num_return_sequences", "num_beams",
                            "num_beam_groups", "no_repeat_ngram_size", "top_k", "rng_seed"})
        for (const char* value : {"1.5", "1e30", "-1e30", "18446744073709551616",
                                  "-9223372036854775809", "true", "\"1\"", "{}"})
            refused(key, value);
    for (const char* key : {"max_new_tokens", "eos_token_id", "logprobs", "top_k", "rng_seed"})
        refused(key, "-2");
    for (const char* value : {"1099511627776", "2147483648", "-2147483649"})
        EXPECT_EQ(refused("priority", value),
                  std::string("generation parameter 'priority' is ") + value +
                      "; allowed: integers from -2147483648 to 2147483647");
    for (const char* value : {"9223372036854775808", "[2, 1.5]", "[2, -1]", "[\"2\"]"})
        refused("eos_token_id", value);
    for (const char* value : {"2", "[1.5]", "[9223372036854775808]", "[[1]]"})
        refused("stop_token_ids", value);
    for (const char* key : {"timeout", "temperature", "top_p", "min_p", "length_penalty",
                            "diversity_penalty", "repetition_penalty", "presence_penalty"})
        for (const char* value : {"1e39", "-1e300", "\"nan\"", "\"-inf\"", "[1]", "false"})
            refused(key, value);
    for (const char* key : {"do_sample", "echo", "ignore_eos", "early_stopping"})
        for (const char* value : {"1", "\"yes\"", "[]"}) refused(key, value);
    for (const char* value : {"\"a\"", "[1]", "[[\"a\"]]"}) refused("stop_strings", value);

    GenerationConfig config;
    config.update_from_json(R"({"max_new_tokens": 1e3, "priority": -2.0, "eos_token_id": 7.0})");
    EXPECT_EQ(config.max_new_tokens, 1000u);
    EXPECT_EQ(config.priority, -2);
    EXPECT_EQ(config.eos_token_id, 7);
    config.update_from_json(
        R"({"max_new_tokens": 18446744073709551615, "rng_seed": 18446744073709551614,
            "eos_token_id": 9223372036854775807, "priority": -2147483648, "timeout": "inf"})");
    EXPECT_EQ(config.max_new_tokens, GenerationConfig::unlimited);
    EXPECT_EQ(config.rng_seed, GenerationConfig::unlimited - 1);
    EXPECT_EQ(config.eos_token_id, std::numeric_limits<int64_t>::max());
    EXPECT_EQ(config.priority, std::numeric_limits<int>::min());
    EXPECT_EQ(config.timeout, std::numeric_limits<float>::infinity());
    EXPECT_NE(refusal([&] { config.validate(); }).find("priority is -2"), std::string::npos);
    config.update_from_json(R"({"priority": 0, "eos_token_id": -1})");
    EXPECT_EQ(config.eos_token_id, -1);
    EXPECT_NO_THROW(config.validate_values());
}

TEST(GenerationConfig, RefusesNestedValuesOfAnyDepth) {
    const std::string deep = std::string(200000, '[') + std::string(200000, ']');
    GenerationConfig config;
    for (const char* key : {"eos_token_id", "stop_strings", "stop_token_ids", "top_k", "timeout"})
        EXPECT_LT(refusal([&] {
                      config.update_from_json(std::string("{\"") + key + "\": " + deep + "}");
                  }).size(),
                  200u)
            << key;
    EXPECT_LT(refusal([&] { config.update_from_json(deep); }).size(), 200u);
}

TEST(GenerationConfig, BoundsEveryCount) {
    EXPECT_EQ(refused([](auto& c) { c.num_return_sequences = 1000000000; }),
              "num_return_sequences is 1000000000; allowed: 1 to 1000");
    EXPECT_EQ(refused([](auto& c) { c.logprobs = GenerationConfig::unlimited; }),
              "logprobs is 18446744073709551615; allowed: 0 to 1000");
    const auto many_beams = [](auto& c) {
        c.do_sample = false;
        c.num_beams = c.num_beam_groups = size_t(1) << 63;
    };
    EXPECT_EQ(refused(many_beams), "num_beams is 9223372036854775808; allowed: 1 to 1000");
    EXPECT_NE(refused([](auto& c) {
                  for (int i = 0; i < 1001; ++i) c.stop_strings.insert(std::to_string(i));
              }).find("the number of stop_strings is 1001"),
              std::string::npos);
    EXPECT_NE(refused([](auto& c) {
                  for (int i = 0; i < 1001; ++i) c.stop_token_ids.insert(i);
              }).find("the number of stop_token_ids is 1001"),
              std::string::npos);
    EXPECT_NE(
        refused([](auto& c) { c.stop_strings = {std::string(10001, 'a')}; }).find("10001 bytes"),
        std::string::npos);
    EXPECT_NE(refused([](auto& c) { c.stop_strings = {"a\x80"}; }).find("not UTF-8"),
              std::string::npos);
    EXPECT_NE(refused([](auto& c) {
                  c.priority = std::numeric_limits<int>::min();
              }).find("priority is -2"),
              std::string::npos);
}

/// A model's generation_config.json.
GenerationConfig of_model(const char* json) {
    const std::string path = testing::TempDir() + "generation_config.json";
    std::ofstream(path) << json;
    return GenerationConfig(std::filesystem::path(path));
}

TEST(GenerationConfig, AModelsOwnValuesThatAreRefusedAreLeftAtTheirDefaults) {
    testing::internal::CaptureStderr();
    const GenerationConfig config = of_model(
        R"({"top_p": 0, "top_k": -1, "min_p": null, "eos_token_id": [2, 0], "priority": 1099511627776,
            "repetition_penalty": 1.25, "num_return_sequences": 3, "do_sample": true,
            "temperature": 1e39, "max_new_tokens": 1.5})");
    const std::string warnings = testing::internal::GetCapturedStderr();
    EXPECT_NO_THROW(config.validate());
    EXPECT_EQ(config.top_p, 1.0f);
    EXPECT_EQ(config.top_k, GenerationConfig::unlimited);
    EXPECT_EQ(config.max_new_tokens, GenerationConfig::unlimited);
    EXPECT_EQ(config.temperature, 1.0f);
    EXPECT_EQ(config.eos_token_id, 2);
    EXPECT_EQ(config.repetition_penalty, 1.25f);
    EXPECT_EQ(config.num_return_sequences, 3u);  // valid with do_sample, whichever is read first
    for (const char* key : {"top_p", "top_k", "priority", "temperature", "max_new_tokens"})
        EXPECT_NE(warnings.find(std::string(key) + " is left at its default"), std::string::npos)
            << key;
    EXPECT_EQ(std::count(warnings.begin(), warnings.end(), '\n'), 5);
}

TEST(GenerationConfig, AModelsTemperatureOfZeroMeansGreedy) {
    for (const char* json : {R"({"temperature": 0, "do_sample": false})",
                             R"({"temperature": 0.0, "do_sample": true})"}) {
        const GenerationConfig config = of_model(json);
        EXPECT_NO_THROW(config.validate_values());
        EXPECT_FALSE(config.do_sample);
        EXPECT_EQ(config.temperature, 1.0f);
    }
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
    EXPECT_THROW(GenerationConfig{std::filesystem::path(path)}, InvalidArgument);
    EXPECT_THROW(GenerationConfig{std::filesystem::path("/does/not/exist.json")}, InvalidArgument);
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

TEST(PerfMetrics, OfBothModelsAreByTheirSteps) {
    PerfMetrics call;
    RawPerfMetrics& raw = call.raw_metrics;
    raw.m_times_to_first_token = {9000};
    raw.m_new_token_times = {10000, 14000, 20000, 30000};
    raw.m_batch_sizes = {1, 3, 3, 5};
    raw.inference_durations = {16000};
    raw.draft_durations = {3000, 1000};
    raw.draft_batch_sizes = {4, 2};
    call.num_drafted_tokens = 5;
    call.num_accepted_tokens = 4;
    SDPerModelsPerfMetrics both(call);
    const SDPerfMetrics& main = both.main_model_metrics;
    EXPECT_EQ(main.raw_metrics.m_durations, (std::vector<float>{9000, 4000, 6000, 10000}));
    EXPECT_FLOAT_EQ(main.get_ttft().mean, 9);
    EXPECT_FLOAT_EQ(main.get_ttst().mean, 4);
    EXPECT_FLOAT_EQ(main.get_latency().mean, 8);
    EXPECT_FLOAT_EQ(main.get_tpot().mean, 2);
    EXPECT_FLOAT_EQ(main.get_throughput().mean, 500);
    EXPECT_FLOAT_EQ(both.draft_model_metrics.get_ttst().mean, 1);
    EXPECT_EQ(both.get_num_draft_processed_tokens(), 6u);
    EXPECT_EQ(both.get_num_rejected_tokens(), 1u);
    EXPECT_FLOAT_EQ(both.get_draft_acceptance_rate(), 0.8f);
    EXPECT_FLOAT_EQ(both.get_draft_processed_to_candidate_ratio(), 1.2f);
    EXPECT_FLOAT_EQ(both.get_draft_to_main_inference_duration_ratio(), 0.25f);
    both += SDPerModelsPerfMetrics(call);
    EXPECT_EQ(both.get_num_draft_tokens(), 10u);
    EXPECT_EQ(both.get_num_draft_processed_tokens(), 12u);
    EXPECT_TRUE(std::isnan(SDPerModelsPerfMetrics().get_draft_acceptance_rate()));
    EXPECT_TRUE(std::isnan(SDPerModelsPerfMetrics().get_draft_to_main_inference_duration_ratio()));
}

}  // namespace
}  // namespace pagewheel
