// Requests that come and go while others run: continuous_batching MODEL_FOLDER
#include <iostream>
#include <map>

#include "pagewheel/continuous_batching_pipeline.hpp"

int main(int argc, char** argv) try {
    if (argc != 2) throw std::invalid_argument("usage: continuous_batching MODEL_FOLDER");
    pagewheel::SchedulerConfig scheduler;
    scheduler.max_num_batched_tokens = 256;
    pagewheel::ContinuousBatchingPipeline pipeline(argv[1], scheduler, "CPU");
    pagewheel::GenerationConfig config = pipeline.get_config();

    const char* prompts[] = {"The capital of France is", "Water boils at", "A poem about rain:"};
    std::map<uint64_t, std::shared_ptr<pagewheel::GenerationHandle>> handles;
    for (uint64_t id = 0; id < 3; ++id) {
        config.max_new_tokens = 16 * (id + 1);
        handles[id] = pipeline.add_request(id, prompts[id], config);
    }
    while (pipeline.has_non_finished_requests()) pipeline.step();
    for (const auto& [id, handle] : handles)
        std::cout << prompts[id]
                  << pipeline.get_tokenizer().decode(handle->read_all()[0].generated_ids)
                  << "\n---\n";
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
