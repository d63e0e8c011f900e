// A system prompt is computed once: pinned, shared by requests, saved for the next start:
// prefix_caching MODEL_FOLDER FILE
#include <iostream>

#include "pagewheel/continuous_batching_pipeline.hpp"
#include "pagewheel/prefix_cache.hpp"

namespace {

pagewheel::ContinuousBatchingPipeline make_pipeline(const char* folder) {
    pagewheel::SchedulerConfig scheduler;
    scheduler.cache_size = 1;
    scheduler.enable_prefix_caching = true;
    return {folder, scheduler, "CPU"};
}

void ask(pagewheel::ContinuousBatchingPipeline pipeline, const std::string& prompt) {
    pagewheel::GenerationConfig config = pipeline.get_config();
    config.max_new_tokens = 20;
    config.apply_chat_template = false;
    const auto result = pipeline.generate(std::vector<std::string>{prompt}, {config}).front();
    const pagewheel::PerfMetrics& metrics = result.perf_metrics;
    std::cout << result.m_generation_ids.front() << "\n  " << metrics.num_prefix_cache_hit_tokens
              << " of " << metrics.num_input_tokens << " prompt tokens were cached\n";
}

}  // namespace

int main(int argc, char** argv) try {
    if (argc != 3) throw std::invalid_argument("usage: prefix_caching MODEL_FOLDER FILE");
    std::string shared = "These are a librarian's answers. ";
    for (int i = 0; i < 20; ++i) shared += "They are brief, and name a book whenever they can. ";
    shared += "\n\nQuestion: ";

    auto pipeline = make_pipeline(argv[1]);
    auto cache = pipeline.get_prefix_cache();
    std::cout << cache.pin(pipeline.get_tokenizer().encode(shared))
              << " tokens are pinned: they stay whatever else is cached\n";
    for (const char* question : {"Who was Sherlock Holmes?", "What is a whale?"})
        ask(pipeline, shared + question + "\n\nAnswer:");
    cache.save(argv[2]);

    auto next = make_pipeline(argv[1]);  // as the program's next start would
    std::cout << next.get_prefix_cache().load(argv[2]) << " tokens came from " << argv[2] << '\n';
    ask(next, shared + "Who was Sherlock Holmes?\n\nAnswer:");
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
