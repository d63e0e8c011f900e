// A conversation, streamed: chat MODEL_FOLDER
#include <iostream>
#include <string>

#include "pagewheel/llm_pipeline.hpp"

int main(int argc, char** argv) try {
    if (argc != 2) throw std::invalid_argument("usage: chat MODEL_FOLDER");
    pagewheel::LLMPipeline pipeline(argv[1], "CPU");
    pagewheel::GenerationConfig config = pipeline.get_generation_config();
    config.max_new_tokens = 200;
    const auto print = [](const std::string& text) {
        std::cout << text << std::flush;
        return pagewheel::StreamingStatus::RUNNING;
    };
    pagewheel::ChatHistory history;
    for (std::string line; std::cout << "\nyou: " << std::flush && std::getline(std::cin, line);) {
        history.append("user", line);
        std::cout << "model: ";
        history.append("assistant", pipeline.generate(history, config, print).texts.front());
    }
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
