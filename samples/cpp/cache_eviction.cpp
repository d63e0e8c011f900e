// A generation whose cache is held to a budget, and whose positions to the model's context:
// cache_eviction MODEL_FOLDER [TOKENS]
#include <iostream>

#include "pagewheel/cache_eviction_config.hpp"
#include "pagewheel/continuous_batching_pipeline.hpp"

int main(int argc, char** argv) try {
    if (argc < 2 || argc > 3)
        throw std::invalid_argument("usage: cache_eviction MODEL_FOLDER [TOKENS]");
    // The first 32 tokens and the last 64 stay. Of those between, the least attended go.
    pagewheel::CacheEvictionConfig eviction(32, 64, 192, pagewheel::AggregationMode::NORM_SUM);
    eviction.apply_rotation = true;  // positions stay within what the model knows
    pagewheel::SchedulerConfig scheduler;
    scheduler.num_kv_blocks = 100;
    scheduler.use_cache_eviction = true;
    scheduler.cache_eviction_config = eviction;
    pagewheel::ContinuousBatchingPipeline pipeline(argv[1], scheduler, "CPU");

    pagewheel::GenerationConfig config = pipeline.get_config();
    config.max_new_tokens = argc == 3 ? std::stoul(argv[2]) : 400;
    config.ignore_eos = true;
    config.repetition_penalty = 1.1f;
    const auto handle = pipeline.add_request(0, "The history of Rome begins", config);
    while (handle->get_status() == pagewheel::GenerationStatus::RUNNING)
        for (const auto& [sequence, output] : handle->read(/*with_text=*/true))
            std::cout << output.text << std::flush;
    std::cout << '\n'
              << config.max_new_tokens << " tokens in at most "
              << pipeline.get_statistics().max_used_blocks
              << " blocks of the cache, 32 tokens each\n";
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
