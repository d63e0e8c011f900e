// What is not there yet: names, values that are kept and checked, and refusals that name it.
#include <functional>
#include <iostream>
#include <memory>
#include <string>

#include "check.hpp"
#include "openvino/genai/continuous_batching_pipeline.hpp"
#include "openvino/genai/lora_adapter.hpp"
#include "openvino/genai/sparse_attention.hpp"
#include "openvino/genai/speculative_decoding/perf_metrics.hpp"

namespace {

void refused(const std::string& name, const std::function<void()>& call) {
    try {
        call();
    } catch (const ov::Exception& error) {
        CHECK(std::string(error.what()).find(name) != std::string::npos);
        return;
    }
    std::cerr << name << " was taken\n";
    std::exit(1);
}

void speculation(const std::string& folder, const std::string& prompt) {
    ov::genai::GenerationConfig config;
    CHECK(config.num_assistant_tokens == 0 && config.assistant_confidence_threshold == 0);
    CHECK(config.branching_factor == 1 && config.tree_depth == 0 && !config.adapters);
    config.update_generation_config(ov::genai::num_assistant_tokens(5),
                                    ov::genai::max_ngram_size(3), ov::genai::max_new_tokens(4));
    CHECK(config.is_assisting_generation() && config.is_prompt_lookup());
    CHECK(!config.is_tree_search() && config.num_assistant_tokens == 5);
    CHECK(config.max_ngram_size == 3 && config.max_new_tokens == 4);
    config.validate();
    ov::genai::GenerationConfig both = config;
    both.assistant_confidence_threshold = 0.5f;
    refused("assistant_confidence_threshold", [&] { both.validate(); });
    refused("num_assistant_tokens",
            [&] { both.update_generation_config(ov::AnyMap{{"num_assistant_tokens", -1}}); });
    CHECK(both.num_assistant_tokens == 5);

    ov::genai::LLMPipeline pipe(folder, "CPU", ov::genai::prompt_lookup(false));
    config.tree_depth = 2;
    refused("tree_depth", [&] { pipe.generate(prompt, config); });
    refused("tree_depth", [&] { pipe(prompt, config); });
    refused("tree_depth", [&] { pipe.set_generation_config(config); });
    refused("tree_depth", [&] { pipe.generate(prompt, ov::genai::tree_depth(2)); });
    refused("tree_depth", [&] { pipe.generate(prompt, ov::genai::generation_config(config)); });
    ov::genai::LLMPipeline lookup(folder, "CPU", ov::genai::prompt_lookup(true));
    const std::string looked_up =
        lookup.generate(prompt, ov::genai::num_assistant_tokens(3), ov::genai::max_ngram_size(3),
                        ov::genai::max_new_tokens(4));
    ov::genai::LLMPipeline drafted(folder, "CPU", ov::genai::draft_model(folder, "CPU"));
    ov::genai::DecodedResults by_model =
        drafted.generate(ov::genai::StringInputs(prompt), ov::genai::num_assistant_tokens(3),
                         ov::genai::max_new_tokens(4));
    CHECK(by_model.texts.front() == looked_up);
    const auto metrics = std::dynamic_pointer_cast<ov::genai::SDPerModelsPerfMetrics>(
        by_model.extended_perf_metrics);
    CHECK(metrics && metrics->get_num_draft_tokens() > 0);
    CHECK(metrics->main_model_metrics.get_num_generated_tokens() == 4);
    refused("prompt_lookup", [&] {
        ov::genai::LLMPipeline(folder, "CPU", ov::genai::draft_model(folder),
                               ov::genai::prompt_lookup(true));
    });
    const std::string text = pipe.generate(prompt, ov::genai::num_assistant_tokens(0),
                                           ov::genai::adapters(), ov::genai::max_new_tokens(4));
    CHECK(!text.empty() && text == looked_up);
    CHECK(ov::genai::SDPerModelsPerfMetrics().get_num_accepted_tokens() == 0);
}

void adapters(const std::string& folder) {
    ov::genai::AdapterConfig none(ov::genai::AdapterConfig::MODE_STATIC);
    CHECK(!none && none.get_mode() == ov::genai::AdapterConfig::MODE_STATIC);
    CHECK(none.get_adapters().empty() && !ov::genai::Adapter());
    refused("LoRA", [&] { ov::genai::Adapter adapter(folder + "/adapter.safetensors"); });
    refused("LoRA", [&] { none.add(ov::genai::Adapter(), 0.5f); });
    ov::genai::GenerationConfig config;
    config.update_generation_config(ov::genai::adapters(none));
    CHECK(config.adapters && config.adapters->get_mode() == none.get_mode());
}

void batches(const std::string& folder, const std::string& prompt) {
    ov::genai::SchedulerConfig scheduler;
    scheduler.num_kv_blocks = 60;
    scheduler.use_sparse_attention = true;
    scheduler.sparse_attention_config.mode = ov::genai::SparseAttentionMode::XATTENTION;
    using ov::genai::ContinuousBatchingPipeline;
    refused("use_sparse_attention", [&] { ContinuousBatchingPipeline(folder, scheduler, "CPU"); });
    refused("use_sparse_attention",
            [&] { ov::genai::LLMPipeline(folder, "CPU", ov::genai::scheduler_config(scheduler)); });
    scheduler.use_sparse_attention = false;
    ContinuousBatchingPipeline pipe(folder, scheduler, "CPU");
    ov::genai::GenerationConfig config;
    config.max_new_tokens = 2;
    config.tree_depth = 3;
    refused("tree_depth", [&] { pipe.add_request(0, prompt, config); });
    refused("tree_depth", [&] { pipe.generate(std::vector{prompt}, {config}); });
    refused("tree_depth", [&] { pipe.set_config(config); });
    CHECK(!pipe.has_non_finished_requests());
}

}  // namespace

void not_yet(char* argv[]) {
    speculation(argv[1], argv[2]);
    adapters(argv[1]);
    batches(argv[1], argv[2]);
}
