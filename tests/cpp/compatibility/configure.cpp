// Configs: defaults, fields, properties. Needs no model.
#include <iostream>
#include <set>
#include <string>

#include "check.hpp"
#include "openvino/genai/cache_eviction.hpp"
#include "openvino/genai/continuous_batching_pipeline.hpp"
#include "openvino/genai/generation_config.hpp"
#include "openvino/genai/generation_handle.hpp"
#include "openvino/genai/json_container.hpp"
#include "openvino/genai/perf_metrics.hpp"
#include "openvino/genai/scheduler_config.hpp"
#include "openvino/genai/visibility.hpp"

void configure(char**) {
    ov::genai::GenerationConfig config;
    CHECK(config.rng_seed == 0u && !config.do_sample && config.is_greedy_decoding());
    config.update_generation_config(
        ov::genai::max_new_tokens(20), ov::genai::num_beams(4), ov::genai::num_beam_groups(2),
        ov::genai::diversity_penalty(0.5f), ov::genai::length_penalty(1.0f),
        ov::genai::num_return_sequences(2), ov::genai::no_repeat_ngram_size(3),
        ov::genai::stop_criteria(ov::genai::StopCriteria::EARLY));
    CHECK(config.is_beam_search() && config.num_beam_groups == 2);
    CHECK(config.stop_criteria == ov::genai::StopCriteria::EARLY);
    config.validate();

    config = ov::genai::GenerationConfig();
    config.update_generation_config(ov::AnyMap{{"do_sample", true},
                                               {"temperature", 1},
                                               {"top_p", 0.5},
                                               {"top_k", 30},
                                               {"repetition_penalty", 1.5f},
                                               {"stop_strings", std::set<std::string>{"a"}}});
    config.update_generation_config(ov::genai::stop_token_ids(std::set<int64_t>{2}),
                                    ov::genai::rng_seed(7), ov::genai::ignore_eos(false),
                                    ov::genai::eos_token_id(3), ov::genai::echo(true),
                                    ov::genai::stop_strings({"b", "c"}), ov::genai::logprobs(1));
    CHECK(config.is_multinomial() && config.temperature == 1.0f && config.top_p == 0.5f);
    CHECK(config.top_k == 30 && config.rng_seed == 7u && config.stop_strings.size() == 2);
    CHECK((config.stop_token_ids == std::set<int64_t>{2, 3}));
    config.set_eos_token_id(4);
    config.max_length = 10;
    CHECK(config.get_max_new_tokens(4) == 6);
    ov::genai::GenerationConfig unended;
    unended.eos_token_id = 5;
    try {
        unended.validate();
        CHECK(false);
    } catch (const ov::Exception& error) {
        CHECK(std::string(error.what()).find("stop_token_ids") == 0);
    }

    ov::genai::SchedulerConfig scheduler;
    scheduler.use_cache_eviction = true;
    scheduler.cache_eviction_config = ov::genai::CacheEvictionConfig(
        32, 32, 128, ov::genai::AggregationMode::NORM_SUM, true, 8,
        ov::genai::KVCrushConfig(1, ov::genai::KVCrushAnchorPointMode::MEAN));
    CHECK(scheduler.cache_eviction_config.get_max_cache_size() == 128);
    CHECK(scheduler.cache_eviction_config.get_evictable_size() == 64);
    CHECK(scheduler.cache_eviction_config.granularity == pagewheel::EvictionGranularity::BLOCK);
    CHECK(ov::Any(scheduler).as<pagewheel::SchedulerConfig>().use_cache_eviction);

    ov::genai::JsonContainer json = ov::genai::JsonContainer::from_json_string(R"({"b":[1,2.5]})");
    json["a"] = nullptr;
    json["b"].push_back("text");
    CHECK(json.to_json_string() == R"({"b":[1,2.5,"text"],"a":null})");
    CHECK(json.contains("b") && json["b"][1].get_double() == 2.5 && json["a"].is_null());
    CHECK(ov::genai::PerfMetrics().get_num_generated_tokens() == 0);
}
