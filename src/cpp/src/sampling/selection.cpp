#include "sampling/selection.hpp"

#include <cmath>
#include <random>
#include <utility>

#include "kernels/logits.hpp"
#include "sampling/best_tokens.hpp"
#include "sampling/candidate_filters.hpp"
#include "sampling/log_probs.hpp"

namespace pagewheel {
namespace {

uint64_t seed_or_random(std::optional<uint64_t> seed) {
    if (seed) return *seed;
    std::random_device device;
    return (uint64_t(device()) << 32) | device();
}

}  // namespace

SampledToken GreedySelection::select(const float* logits, size_t n, size_t) {
    const size_t best = find_best_token(logits, n, m_isa);
    if (!m_wants_log_prob) return {int64_t(best), 0.0f};
    return {int64_t(best),
            rounded_log_prob(-std::log(kernels::sum_exp(logits, n, logits[best], 1.0f, m_isa)))};
}

RandomSelection::RandomSelection(const GenerationConfig& config, std::optional<uint64_t> seed,
                                 size_t index, Isa isa)
    : m_temperature(config), m_seed(seed_or_random(seed)), m_index(index), m_isa(isa) {
    for (const FilterKind& kind : candidate_filters())
        if (auto filter = kind.make(config)) m_filters.push_back(std::move(filter));
}

SampledToken RandomSelection::select(const float* logits, size_t n, size_t position) {
    const LogitsMaxima row(logits, n, m_isa);
    const TokenRandom random(m_seed, m_index, position);
    Candidates candidates(row, m_temperature.inverse(row, m_isa), m_isa);
    for (const auto& filter : m_filters) filter->apply(candidates, random);
    const auto [id, log_prob] = candidates.draw(random.uniform(Draw::TOKEN));
    for (const auto& filter : m_filters) filter->observe(log_prob);
    return {int64_t(id), rounded_log_prob(log_prob)};
}

std::unique_ptr<Selection> make_selection(const GenerationConfig& config,
                                          std::optional<uint64_t> seed, size_t index, Isa isa) {
    if (config.do_sample) return std::make_unique<RandomSelection>(config, seed, index, isa);
    return std::make_unique<GreedySelection>(config, isa);
}

}  // namespace pagewheel
