#include "sampling/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "kernels/logits.hpp"
#include "sampling/candidate_filters.hpp"
#include "sampling/log_probs.hpp"

namespace pagewheel {

Temperature::Temperature(const GenerationConfig& config)
    : m_middle(double(config.temperature)),
      m_range(double(config.dynatemp_range)),
      m_exponent(double(config.dynatemp_exponent)) {}

double Temperature::inverse(const LogitsMaxima& row, Isa isa) const {
    const double temperature = m_range > 0 && row.size() > 1 ? dynamic(row, isa) : m_middle;
    return std::min(1 / temperature, double(std::numeric_limits<float>::max()));
}

/// llama.cpp's dynamic temperature, but of all tokens, because like a fixed temperature it comes
/// before the filters. It goes from m_middle - m_range, where one token has all probability, to
/// m_middle + m_range, where all have the same, by the entropy's share of the greatest one.
double Temperature::dynamic(const LogitsMaxima& row, Isa isa) const {
    Candidates all(row, 1.0, isa);
    const double share = std::clamp(all.entropy() / std::log(double(row.size())), 0.0, 1.0);
    const double least = std::max(0.0, m_middle - m_range);
    return least + (m_middle + m_range - least) * std::pow(share, m_exponent);
}

namespace {

uint64_t seed_or_random(std::optional<uint64_t> seed) {
    if (seed) return *seed;
    std::random_device device;
    return (uint64_t(device()) << 32) | device();
}

}  // namespace

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

Sampler::Sampler(const GenerationConfig& config, std::optional<uint64_t> seed, size_t index,
                 Isa isa, const LogitsChain& chain)
    : m_chain(config.is_beam_search() ? LogitsChain() : chain.fork()),  // beams have their own
      m_isa(isa),
      m_num_log_probs(config.logprobs) {
    if (config.do_sample) m_random.emplace(config, seed, index, isa);
}

Sampler::Sampler(const GenerationConfig& config, size_t index, Isa isa)
    : Sampler(config, config.rng_seed, index, isa, LogitsChain(config)) {}

SampledToken Sampler::sample(const TokenHistory& history, float* logits, size_t n) {
    m_chain.process({logits, n}, history);
    const SampledToken token = select(logits, n, history.num_generated());
    if (m_num_log_probs > 0)
        LogProbs(logits, n, m_isa).find_top(m_num_log_probs, token.id, m_top_log_probs);
    return token;
}

SampledToken Sampler::select_best(const float* logits, size_t n) const {
    const size_t best = find_best_token(logits, n, m_isa);
    if (m_num_log_probs == 0) return {int64_t(best), 0.0f};
    return {int64_t(best), rounded_log_prob(-std::log(kernels::logits_kernels(m_isa).sum_exp(
                               logits, n, logits[best], 1.0f)))};
}

SampledToken Sampler::select(const float* logits, size_t n, size_t position) {
    try {
        return m_random ? m_random->select(logits, n, position) : select_best(logits, n);
    } catch (const NoTokenLeft& error) {
        // What the grammar allows, the request's bans or the model forbid.
        if (m_chain.grammar()) throw GrammarEnd(false, error.what());
        throw;
    }
}

}  // namespace pagewheel
