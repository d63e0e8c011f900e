// The likeliest continuations of a prompt, from groups that avoid each other:
// beam_search MODEL_FOLDER "PROMPT"
#include <iostream>

#include "pagewheel/llm_pipeline.hpp"

int main(int argc, char** argv) try {
    if (argc != 3) throw std::invalid_argument("usage: beam_search MODEL_FOLDER PROMPT");
    pagewheel::LLMPipeline pipeline(argv[1], "CPU");
    pagewheel::GenerationConfig config = pipeline.get_generation_config();
    config.max_new_tokens = 30;
    config.do_sample = false;
    config.num_beams = 6;
    config.num_beam_groups = 3;
    config.diversity_penalty = 1.0f;
    config.num_return_sequences = 3;
    const pagewheel::DecodedResults results = pipeline.generate(argv[2], config);
    for (size_t i = 0; i < results.texts.size(); ++i)
        std::cout << "--- " << results.scores[i] << '\n' << results.texts[i] << '\n';
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
