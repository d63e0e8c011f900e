// What leaves the cache is chosen by a policy of one's own: eviction_policy MODEL_FOLDER "PROMPT"
#include <algorithm>
#include <iostream>
#include <numeric>

#include "pagewheel/cache_eviction_config.hpp"
#include "pagewheel/eviction_policy.hpp"
#include "pagewheel/llm_pipeline.hpp"

/// Thins out what is old: odd positions go first, among them those that got the least attention.
class EveryOther : public pagewheel::EvictionPolicy {
public:
    size_t decisions = 0;

    /// Which attention view.scores sums up. A policy that reads none leaves this out.
    pagewheel::ObservedQueries observed() const override {
        pagewheel::ObservedQueries queries;
        queries.decode = 16;
        return queries;
    }

    void drop(const pagewheel::EvictionView& view, size_t count,
              std::vector<size_t>& dropped) override {
        ++decisions;
        std::vector<size_t> units(view.last_unit - view.first_unit);
        std::iota(units.begin(), units.end(), view.first_unit);
        const auto rank = [&](size_t token) {
            return std::pair(view.positions[token] % 2 == 0, view.scores[token]);
        };
        std::sort(units.begin(), units.end(),
                  [&](size_t a, size_t b) { return rank(a) < rank(b); });
        dropped.insert(dropped.end(), units.begin(), units.begin() + std::ptrdiff_t(count));
    }
};

int main(int argc, char** argv) try {
    if (argc != 3) throw std::invalid_argument("usage: eviction_policy MODEL_FOLDER PROMPT");
    const auto policy = std::make_shared<EveryOther>();
    pagewheel::CacheEvictionConfig eviction(16, 32, 128, pagewheel::AggregationMode::SUM);
    eviction.apply_rotation = true;
    eviction.custom_policy = policy;
    eviction.granularity = pagewheel::EvictionGranularity::TOKEN;  // a unit is a token
    pagewheel::SchedulerConfig scheduler;
    scheduler.use_cache_eviction = true;
    scheduler.cache_eviction_config = eviction;
    pagewheel::LLMPipeline pipeline(argv[1], "CPU", {}, scheduler);

    pagewheel::GenerationConfig config = pipeline.get_generation_config();
    config.max_new_tokens = 200;
    config.ignore_eos = true;
    std::cout << pipeline.generate(argv[2], config) << "\nthe policy was asked "
              << policy->decisions << " times, once per layer and decision\n";
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
