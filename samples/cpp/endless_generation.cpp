// Generation without end, past the model's context, in a cache of a fixed size:
// endless_generation MODEL_FOLDER [TOKENS], where 0 goes on until Ctrl-C
#include <iostream>

#include "pagewheel/cache_eviction_config.hpp"
#include "pagewheel/continuous_batching_pipeline.hpp"

int main(int argc, char** argv) try {
    if (argc < 2 || argc > 3)
        throw std::invalid_argument("usage: endless_generation MODEL_FOLDER [TOKENS]");
    const size_t stop_after = argc == 3 ? std::stoul(argv[2]) : 1000;
    pagewheel::CacheEvictionConfig eviction(32, 128, 512, pagewheel::AggregationMode::NORM_SUM);
    eviction.apply_rotation = true;
    pagewheel::SchedulerConfig scheduler;
    scheduler.num_kv_blocks = 32;  // of 32 tokens: the budget and what a step adds
    scheduler.use_cache_eviction = true;
    scheduler.cache_eviction_config = eviction;
    pagewheel::ContinuousBatchingPipeline pipeline(argv[1], scheduler, "CPU");

    // No limit and no stop token: with cache eviction that is allowed.
    pagewheel::GenerationConfig config;
    config.ignore_eos = true;
    config.do_sample = true;
    config.temperature = 0.9f;
    config.top_p = 0.95f;
    config.repetition_penalty = 1.1f;
    const auto handle = pipeline.add_request(0, "Once upon a time", config);
    size_t generated = 0;
    for (std::string text; stop_after == 0 || generated < stop_after;) {
        for (const auto& [sequence, output] : handle->read(/*with_text=*/true)) {
            generated += output.generated_ids.size();
            text += output.text;
        }
        if (generated % 250 != 0) continue;
        std::cout << generated << " tokens, " << pipeline.get_statistics().num_used_blocks
                  << " blocks: " << text << "\n---\n";
        text.clear();
    }
    handle->stop();
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
