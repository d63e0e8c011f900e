// Urgent requests overtake others, late ones end at a deadline, too many are refused:
// priorities MODEL_FOLDER
#include <iostream>
#include <map>

#include "pagewheel/continuous_batching_pipeline.hpp"

namespace {

struct Request {
    const char* name;
    size_t max_new_tokens;
    int priority;
    std::optional<float> timeout;  ///< seconds from its submission, in the queue too
};

}  // namespace

int main(int argc, char** argv) try {
    if (argc != 2) throw std::invalid_argument("usage: priorities MODEL_FOLDER");
    pagewheel::SchedulerConfig scheduler;
    scheduler.num_kv_blocks = 60;
    scheduler.max_num_seqs = 1;  // so that one is seen to wait for another
    scheduler.max_queue = 4;
    pagewheel::ContinuousBatchingPipeline pipeline(argv[1], scheduler, "CPU");

    const Request requests[] = {{"patient", 20, 0, {}},
                                {"urgent", 20, 5, {}},
                                {"late", 1000, 0, 1.0f},
                                {"hopeless", 20, 0, 0.001f},
                                {"one too many", 20, 0, {}}};
    std::map<std::string, std::shared_ptr<pagewheel::GenerationHandle>> handles;
    for (uint64_t id = 0; id < 5; ++id) {
        pagewheel::GenerationConfig config = pipeline.get_config();
        config.ignore_eos = true;
        config.max_new_tokens = requests[id].max_new_tokens;
        config.priority = requests[id].priority;
        config.timeout = requests[id].timeout;
        try {
            handles[requests[id].name] = pipeline.add_request(id, "Once upon a time", config);
        } catch (const pagewheel::QueueFull& error) {
            std::cout << requests[id].name << ": " << error.what() << '\n';
        }
    }

    while (pipeline.has_non_finished_requests()) {
        pipeline.step();
        for (auto each = handles.begin(); each != handles.end();) {
            const auto& [name, handle] = *each;
            const auto status = handle->get_status();
            if (status == pagewheel::GenerationStatus::RUNNING) {
                ++each;
                continue;
            }
            const auto outputs = handle->outputs_so_far();
            std::cout << name << ": "
                      << (status == pagewheel::GenerationStatus::TIMEOUT ? "timed out" : "finished")
                      << " with " << (outputs.empty() ? 0 : outputs[0].generated_ids.size())
                      << " tokens\n";
            each = handles.erase(each);
        }
    }
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
