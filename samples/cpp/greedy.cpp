// Greedy generation from one prompt: greedy MODEL_FOLDER "PROMPT"
#include <iostream>

#include "pagewheel/llm_pipeline.hpp"

int main(int argc, char** argv) try {
    if (argc != 3) throw std::invalid_argument("usage: greedy MODEL_FOLDER PROMPT");
    pagewheel::LLMPipeline pipeline(argv[1], "CPU");
    pagewheel::GenerationConfig config = pipeline.get_generation_config();
    config.max_new_tokens = 100;
    std::cout << pipeline.generate(argv[2], config) << '\n';
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
