// generate() in all its forms. Prints what each must give: one text, again and again.
#include <iostream>
#include <string>
#include <vector>

#include "check.hpp"
#include "openvino/genai/llm_pipeline.hpp"
#include "pagewheel/llm_pipeline.hpp"

namespace {

/// By pagewheel's own API.
std::string expected(const std::string& folder, const std::string& prompt, size_t tokens) {
    pagewheel::LLMPipeline pipe(folder);
    pagewheel::GenerationConfig config = pipe.get_generation_config();
    config.max_new_tokens = tokens;
    return pipe.generate(prompt, config).texts.at(0);
}

void print_metrics(ov::genai::PerfMetrics metrics) {
    CHECK(metrics.get_num_generated_tokens() == 6);
    CHECK(metrics.get_num_input_tokens() > 0);
    CHECK(metrics.get_load_time() > 0);
    CHECK(metrics.get_ttft().mean > 0 && metrics.get_tpot().mean > 0);
    CHECK(metrics.get_throughput().mean > 0 && metrics.get_ipot().mean > 0);
    CHECK(metrics.get_generate_duration().mean >= metrics.get_inference_duration().mean);
    CHECK(metrics.get_tokenization_duration().mean >= 0);
    CHECK(metrics.get_detokenization_duration().mean >= 0);
    CHECK((metrics + metrics).get_num_generated_tokens() == 12);
}

}  // namespace

void generate(char* argv[]) {
    const std::string models_path = argv[1], prompt = argv[2];
    const std::string want = expected(models_path, prompt, 6);

    ov::genai::SchedulerConfig scheduler_config;
    scheduler_config.enable_prefix_caching = true;
    scheduler_config.num_kv_blocks = 60;
    ov::genai::LLMPipeline pipe(models_path, "CPU", ov::genai::scheduler_config(scheduler_config));
    ov::AnyMap by_name{{"scheduler_config", scheduler_config}, {"ATTENTION_BACKEND", "PA"}};
    ov::genai::LLMPipeline another(models_path, ov::genai::Tokenizer(models_path), "CPU", by_name);

    std::string text = pipe.generate(prompt, ov::genai::max_new_tokens(6));
    CHECK(text == want);
    text = std::string(another(prompt, ov::genai::max_new_tokens(6), ov::genai::do_sample(false)));
    CHECK(text == want);
    text = pipe.generate(prompt, ov::AnyMap{{"max_new_tokens", 6}});
    CHECK(text == want);

    ov::genai::GenerationConfig config = pipe.get_generation_config();
    config.max_new_tokens = 6;
    text = pipe.generate(prompt, config);
    CHECK(text == want);
    text = pipe(prompt, config);
    CHECK(text == want);
    text = pipe.generate(prompt, ov::genai::generation_config(config));
    CHECK(text == want);
    std::string streamed;
    auto streamer = [&](std::string word) {
        streamed += word;
        return ov::genai::StreamingStatus::RUNNING;
    };
    ov::genai::DecodedResults results = pipe.generate(prompt, config, streamer);
    CHECK(results.texts.at(0) == want && streamed == want);
    CHECK(results.scores.size() == 1 && results.finish_reasons.size() == 1);
    print_metrics(results.perf_metrics);
    std::cout << results << std::endl;

    std::vector<std::string> prompts{prompt, prompt};
    std::vector<std::string> texts = pipe.generate(prompts, config);
    CHECK(texts == std::vector<std::string>(2, want));

    ov::genai::Tokenizer tokenizer = pipe.get_tokenizer();
    config.apply_chat_template = false;
    const std::string plain = pipe.generate(prompt, config);
    ov::genai::TokenizedInputs inputs = tokenizer.encode(prompt);
    ov::genai::EncodedResults encoded = pipe.generate(inputs, config);
    CHECK(tokenizer.decode(encoded.tokens.at(0)) == plain);
    encoded = pipe.generate(inputs.input_ids, ov::genai::max_new_tokens(6));
    CHECK(tokenizer.decode(encoded.tokens).at(0) == plain);

    config.do_sample = true;  // rng_seed is 0: the same each time
    CHECK(std::string(pipe.generate(prompt, config)) == std::string(pipe.generate(prompt, config)));
    pipe.set_generation_config(config);
    CHECK(pipe.get_generation_config().do_sample);
}
