// Answer a batch of prompts with models as they come, .gguf files and Hugging Face folders:
// model_files MODEL... (conversion asks the command `pagewheel`, which a Python package brings)
#include <iostream>

#include "pagewheel/continuous_batching_pipeline.hpp"

int main(int argc, char** argv) try {
    if (argc < 2) throw std::invalid_argument("usage: model_files MODEL...");
    const std::vector<std::string> prompts{"The capital of France is", "Water boils at",
                                           "Once upon a time"};
    pagewheel::SchedulerConfig scheduler;
    scheduler.cache_size = 1;
    for (int i = 1; i < argc; ++i) {
        // What is not in OpenVINO's format is converted once, and found in a cache later.
        pagewheel::ContinuousBatchingPipeline pipeline(argv[i], scheduler, "CPU");
        std::cout << argv[i] << ", opened\n";
        pagewheel::GenerationConfig config;
        config.max_new_tokens = 12;
        config.eos_token_id = pipeline.get_tokenizer().get_eos_token_id();
        const auto results = pipeline.generate(
            prompts, std::vector<pagewheel::GenerationConfig>(prompts.size(), config));
        for (size_t p = 0; p < prompts.size(); ++p)
            std::cout << "  " << prompts[p] << results[p].m_generation_ids.at(0) << '\n';
    }
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
