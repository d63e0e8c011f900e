#include "sampling/sampler.hpp"

#include <random>

namespace pagewheel {
namespace {

uint64_t seed_of(const GenerationConfig& config, size_t index) {
    if (config.rng_seed) return *config.rng_seed + index;
    std::random_device device;
    return (uint64_t(device()) << 32) | device();
}

std::unique_ptr<Selection> make_selection(const GenerationConfig& config, size_t index, Isa isa) {
    if (config.do_sample)
        return std::make_unique<RandomSelection>(config, seed_of(config, index), isa);
    return std::make_unique<GreedySelection>(config, isa);
}

}  // namespace

Sampler::Sampler(const GenerationConfig& config, size_t index, Isa isa)
    : m_chain(config), m_selection(make_selection(config, index, isa)) {}

SampledToken Sampler::sample(const TokenHistory& history, float* logits, size_t n) {
    m_chain.process({logits, n}, history);
    return m_selection->select(logits, n);
}

}  // namespace pagewheel
