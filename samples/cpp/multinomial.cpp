// Three random continuations of one prompt: multinomial MODEL_FOLDER "PROMPT"
#include <iostream>

#include "pagewheel/llm_pipeline.hpp"

int main(int argc, char** argv) try {
    if (argc != 3) throw std::invalid_argument("usage: multinomial MODEL_FOLDER PROMPT");
    pagewheel::LLMPipeline pipeline(argv[1], "CPU");
    pagewheel::GenerationConfig config = pipeline.get_generation_config();
    config.max_new_tokens = 60;
    config.do_sample = true;
    config.temperature = 0.8f;
    config.top_p = 0.9f;
    config.num_return_sequences = 3;
    for (const std::string& text : pipeline.generate(argv[2], config).texts)
        std::cout << "---\n" << text << '\n';
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
