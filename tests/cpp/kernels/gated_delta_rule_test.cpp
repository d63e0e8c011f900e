// The gated delta rule against the paper's recurrence (arXiv 2412.06464) in double precision.
#include "kernels/gated_delta_rule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "support/kernel_access.hpp"
#include "support/packed_tables.hpp"

namespace pagewheel::kernels {
namespace {

struct Rows {
    std::vector<float> values;
    size_t width = 0;

    StridedRows from(size_t token) const { return {values.data() + token * width, width}; }
};

Rows normal(size_t tokens, size_t width, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> distribution;
    Rows rows{std::vector<float>(tokens * width), width};
    for (float& value : rows.values) value = distribution(random);
    return rows;
}

/// All tokens of one sequence.
struct Sequence {
    Rows queries, keys, values, decays, betas, gates;

    Sequence(const GatedDeltaRuleConfig& config, size_t tokens, unsigned seed)
        : queries(normal(tokens, config.key_width(), seed)),
          keys(normal(tokens, config.key_width(), seed + 1)),
          values(normal(tokens, config.value_width(), seed + 2)),
          decays(normal(tokens, config.decay_width(), seed + 3)),
          betas(normal(tokens, config.value_heads, seed + 4)),
          gates(normal(tokens, config.value_width(), seed + 5)) {
        if (config.decay_rates.empty())
            for (float& g : decays.values) g = -std::exp(g - 2);
        if (!config.beta_is_logit)
            for (float& beta : betas.values) beta = 1 / (1 + std::exp(-beta));
    }
    size_t size() const { return values.values.size() / values.width; }
    GatedDeltaInputs from(size_t token) const {
        return {queries.from(token), keys.from(token),  values.from(token),
                decays.from(token),  betas.from(token), gates.from(token)};
    }
};

std::vector<double> of_length_one(const float* x, size_t size, double epsilon) {
    std::vector<double> result(x, x + size);
    double sum = epsilon;
    for (const double each : result) sum += each * each;
    if (epsilon > 0)
        for (double& each : result) each /= std::sqrt(sum);
    return result;
}

std::vector<double> by_definition(const GatedDeltaRuleConfig& config, const Sequence& sequence) {
    const size_t keys = config.key_size, width = config.value_size;
    std::vector<double> all(sequence.size() * config.value_width());
    for (size_t head = 0; head < config.value_heads; ++head) {
        std::vector<double> state(keys * width, 0.0);
        const size_t key_head = head / (config.value_heads / config.key_heads);
        for (size_t t = 0; t < sequence.size(); ++t) {
            const auto k = of_length_one(sequence.keys.from(t).values + key_head * keys, keys,
                                         double(config.key_epsilon));
            const auto q = of_length_one(sequence.queries.from(t).values + key_head * keys, keys,
                                         double(config.query_epsilon));
            const float* v = sequence.values.from(t).values + head * width;
            const auto decay = [&](size_t i) {
                const size_t at = config.decay_by_channel ? head * keys + i : head;
                double g = double(sequence.decays.from(t).values[at]);
                if (!config.decay_rates.empty())
                    g = double(config.decay_rates[head]) *
                        std::log1p(std::exp(g + double(config.decay_bias[at])));
                return std::exp(g);
            };
            double beta = double(sequence.betas.from(t).values[head]);
            if (config.beta_is_logit) beta = double(config.beta_scale) / (1 + std::exp(-beta));
            double* y = &all[t * config.value_width() + head * width];
            double squares = 0;
            for (size_t c = 0; c < width; ++c) {
                double known = 0, sum = 0;
                for (size_t i = 0; i < keys; ++i)
                    known += (state[i * width + c] *= decay(i)) * k[i];
                for (size_t i = 0; i < keys; ++i)
                    sum += (state[i * width + c] += k[i] * beta * (double(v[c]) - known)) * q[i];
                y[c] = sum / std::sqrt(double(keys));
                squares += y[c] * y[c];
            }
            if (config.norm_weight.empty()) continue;
            const double root = std::sqrt(squares / double(width) + double(config.norm_epsilon));
            const float* z = sequence.gates.from(t).values + head * width;
            for (size_t c = 0; c < width; ++c)
                y[c] *= double(config.norm_weight[c]) / root *
                        (config.gate_is_sigmoid ? 1 : double(z[c])) / (1 + std::exp(-double(z[c])));
        }
    }
    return all;
}

/// Computes the sequence in calls of `most` tokens, each of which writes another state.
/// `goes_back`: after a call that is split the next one goes on from the state after its first
/// tokens.
std::vector<float> computed(const GatedDeltaRuleConfig& config, const Sequence& sequence,
                            size_t most, Isa isa, bool goes_back = false) {
    std::vector<uint8_t> states(3 * config.state_bytes(), 0xFF);  // each of them NaN
    std::vector<float> y(sequence.size() * config.value_width());
    int32_t source = -1;
    for (size_t done = 0, calls = 0; done < sequence.size(); ++calls) {
        const size_t count = std::min(most, sequence.size() - done);
        const size_t split = goes_back && calls % 3 && source >= 0 && source < 2 ? count / 2 : 0;
        TableValues tables;
        tables.add(done, count, {});
        tables.state_sources = {source};
        tables.state_targets = {source == 2 ? 2 : source + 1};  // the last one in place
        tables.state_splits = {int32_t(split)};
        if (split == 0) source = tables.state_targets[0];
        std::vector<int32_t> words(tables.num_words());
        tables.pack(words.data());
        const BatchTables read(words.data(), words.size(), 0);
        read.check_states(count, 3);
        gated_delta_rule(config, read, sequence.from(done), states.data(),
                         y.data() + done * config.value_width(), isa);
        done += split > 0 ? split : count;
    }
    return y;
}

double largest_error(const std::vector<float>& got, const std::vector<double>& expected) {
    double largest = 0, size = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
        const double error = std::abs(double(got[i]) - expected[i]);
        largest = error <= largest ? largest : error;  // NaN is not
        size = std::max(size, std::abs(expected[i]));
    }
    return largest / size;
}

GatedDeltaRuleConfig heads(size_t key_heads, size_t value_heads, size_t key_size,
                           size_t value_size) {
    GatedDeltaRuleConfig config;
    config.key_heads = key_heads;
    config.value_heads = value_heads;
    config.key_size = key_size;
    config.value_size = value_size;
    config.query_epsilon = config.key_epsilon = 1e-6f;
    return config;
}

void add_gates(GatedDeltaRuleConfig& config) {
    config.decay_rates = normal(1, config.value_heads, 7).values;
    for (float& rate : config.decay_rates) rate = -std::exp(rate);
    config.decay_bias = normal(1, config.decay_width(), 8).values;
    config.beta_is_logit = true;
    config.beta_scale = 2;
    config.norm_weight = normal(1, config.value_size, 9).values;
    config.norm_epsilon = 1e-6f;
}

TEST(GatedDeltaRule, IsItsDefinitionHoweverSequencesAreCut) {
    for (const auto& [fused, by_channel] :
         {std::pair(false, false), {true, false}, {false, true}, {true, true}})
        for (GatedDeltaRuleConfig config : {heads(2, 4, 32, 16), heads(1, 1, 12, 20),
                                            heads(2, 2, 64, 144), heads(1, 3, 96, 48)}) {
            config.decay_by_channel = by_channel;
            if (fused) add_gates(config);
            config.gate_is_sigmoid = by_channel;
            const Sequence sequence(config, 45, 3);
            const std::vector<double> expected = by_definition(config, sequence);
            for (const Isa isa : available_isas())
                for (const size_t most : {1, 2, 5, 8, 33, 45})
                    EXPECT_LT(largest_error(computed(config, sequence, most, isa), expected), 3e-6)
                        << isa.name() << ", " << config.key_size << " by " << config.value_size
                        << ", " << most << " at once";
            for (const Isa isa : available_isas())
                EXPECT_LT(largest_error(computed(config, sequence, 5, isa, true), expected), 3e-6)
                    << isa.name() << ", split";
        }
}

TEST(GatedDeltaRule, HasTheSameBitsHoweverSequencesAreCutWhereTheyAreAskedFor) {
    for (const bool by_channel : {false, true}) {
        GatedDeltaRuleConfig config = heads(2, 4, 32, 64);
        config.decay_by_channel = by_channel;
        add_gates(config);
        config.batch_invariant = true;
        const Sequence sequence(config, 30, 4);
        for (const Isa isa : available_isas()) {
            const std::vector<float> whole = computed(config, sequence, 30, isa);
            for (const size_t most : {1, 4, 11})
                EXPECT_EQ(computed(config, sequence, most, isa), whole)
                    << isa.name() << ", " << most;
        }
    }
}

TEST(GatedDeltaRule, ForgetsAllWhereTheDecayIsComplete) {
    for (const bool by_channel : {false, true}) {
        GatedDeltaRuleConfig config = heads(1, 1, 32, 32);
        config.decay_by_channel = by_channel;
        Sequence sequence(config, 20, 5);
        std::fill_n(&sequence.decays.values[10 * config.decay_width()], config.decay_width(),
                    -1e4f);
        const std::vector<double> expected = by_definition(config, sequence);
        for (const Isa isa : available_isas())
            EXPECT_LT(largest_error(computed(config, sequence, 20, isa), expected), 3e-6);
    }
}

TEST(GatedDeltaRule, RefusesHeadsThatDoNotFit) {
    EXPECT_NO_THROW(heads(2, 4, 8, 8).check());
    EXPECT_THROW(heads(3, 4, 8, 8).check(), std::runtime_error);
    EXPECT_THROW(heads(2, 4, 8, 1000).check(), std::runtime_error);
    GatedDeltaRuleConfig config = heads(2, 4, 8, 8);
    add_gates(config);
    EXPECT_NO_THROW(config.check());
    config.decay_bias.pop_back();
    EXPECT_THROW(config.check(), std::runtime_error);
}

}  // namespace
}  // namespace pagewheel::kernels
