// Many requests in one batch. Prints the text of the prompt's request.
#include <iostream>
#include <string>
#include <vector>

#include "check.hpp"
#include "openvino/genai/continuous_batching_pipeline.hpp"

void batch(char* argv[]) {
    const std::string prompt = argv[2];
    ov::genai::SchedulerConfig scheduler_config;
    CHECK(scheduler_config.max_num_batched_tokens == 256);
    scheduler_config.num_kv_blocks = 60;
    scheduler_config.dynamic_split_fuse = true;
    scheduler_config.max_num_seqs = 8;
    ov::genai::ContinuousBatchingPipeline pipe(argv[1], scheduler_config, "CPU", {}, {});

    ov::genai::Tokenizer tokenizer = pipe.get_tokenizer();
    ov::genai::GenerationConfig config = pipe.get_config();
    config.max_new_tokens = 6;
    config.apply_chat_template = false;
    config.ignore_eos = true;

    const auto ids = tokenizer.encode(prompt).input_ids;
    std::vector<ov::genai::GenerationHandle> handles;
    handles.push_back(pipe.add_request(0, prompt, config));
    handles.push_back(pipe.add_request(1, ids, config));
    handles.push_back(pipe.add_request(2, prompt, ov::AnyMap{{"generation_config", config}}));
    std::vector<int64_t> read[3];
    while (pipe.has_non_finished_requests()) {
        pipe.step();
        for (size_t i = 0; i < 2; ++i) {
            if (!handles[i]->can_read()) continue;
            ov::genai::GenerationOutputs outputs = handles[i]->read();
            for (auto& [sequence, output] : outputs)
                read[i].insert(read[i].end(), output.generated_ids.begin(),
                               output.generated_ids.end());
        }
    }
    const std::vector<ov::genai::GenerationOutput> all = handles[2]->read_all();
    read[2] = all.at(0).generated_ids;
    CHECK(all[0].finish_reason == ov::genai::GenerationFinishReason::LENGTH);
    CHECK(handles[2]->get_status() == ov::genai::GenerationStatus::FINISHED);
    CHECK(read[0].size() == 6 && read[0] == read[1] && read[1] == read[2]);
    std::cout << tokenizer.decode(read[0]) << '\n';

    ov::genai::GenerationHandle dropped = pipe.add_request(3, prompt, config);
    dropped->cancel();
    CHECK(dropped->is_cancelled() && !dropped->is_stopped());
    pipe.step();

    const std::vector<std::string> prompts{prompt, "a"};
    const std::vector<ov::genai::GenerationConfig> configs{config, config};
    const auto results = pipe.generate(prompts, configs);
    CHECK(results.size() == 2 && results[0].m_status == ov::genai::GenerationStatus::FINISHED);
    CHECK(results[0].get_generation_ids().at(0) == tokenizer.decode(read[0]));
    const std::vector<ov::Tensor> tensors{ids};
    CHECK(pipe.generate(tensors, {config}).at(0).m_generation_ids.at(0) == read[0]);
    const auto by_name =
        pipe.generate(prompts, ov::genai::max_new_tokens(6), ov::genai::apply_chat_template(false),
                      ov::genai::ignore_eos(true));
    CHECK(by_name.at(0).m_generation_ids == results[0].m_generation_ids);
    pipe.set_config(config);
    CHECK(pipe.get_config().max_new_tokens == 6);

    ov::genai::ChatHistory history;
    history.push_back({{"role", "user"}, {"content", prompt}});
    const std::vector<ov::genai::ChatHistory> histories{history};
    CHECK(pipe.generate(histories, {config}).at(0).m_generation_ids.size() == 1);

    ov::genai::PipelineMetrics metrics = pipe.get_metrics();
    CHECK(metrics.requests == 0 && metrics.max_cache_usage > 0);
}
