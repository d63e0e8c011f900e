// Mamba 2's recurrence against its definition in double precision.
#include "kernels/selective_ssm.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "support/kernel_access.hpp"
#include "support/packed_tables.hpp"

namespace pagewheel::kernels {
namespace {

std::vector<float> normal(size_t size, unsigned seed, float mean = 0) {
    std::mt19937 random(seed);
    std::normal_distribution<float> distribution(mean);
    std::vector<float> values(size);
    for (float& value : values) value = distribution(random);
    return values;
}

struct Shape {
    size_t heads, head_dim, groups, state_size;
};

SelectiveSsmConfig make_config(const Shape& shape, bool plain) {
    SelectiveSsmConfig config;
    config.heads = shape.heads, config.head_dim = shape.head_dim;
    config.groups = shape.groups, config.state_size = shape.state_size;
    for (size_t h = 0; h < shape.heads; ++h) config.a.push_back(-0.25f * float(h + 1));
    if (plain) return config;
    config.d = normal(shape.heads, 1, 1);
    config.dt_bias = normal(shape.heads, 2, -2);
    config.dt_min = 0.02f, config.dt_max = 0.8f;
    return config;
}

/// The inputs of all tokens of a sequence: x, B and C side by side, steps and gates.
struct Tokens {
    size_t width;
    std::vector<float> xbc, dt, gate;

    Tokens(const SelectiveSsmConfig& config, size_t count, unsigned seed)
        : width(config.heads * config.head_dim + 2 * config.groups * config.state_size),
          xbc(normal(count * width, seed)),
          dt(normal(count * config.heads, seed + 1)),
          gate(normal(count * config.heads * config.head_dim, seed + 2)) {
        if (config.dt_bias.empty())
            for (float& step : dt) step = 0.1f * std::abs(step);
    }
};

double softplus(double x) {
    return std::log1p(std::exp(x));
}

std::vector<double> by_definition(const SelectiveSsmConfig& config, const Tokens& tokens) {
    const size_t dim = config.head_dim, size = config.state_size, inner = config.heads * dim;
    const size_t count = tokens.xbc.size() / tokens.width;
    const bool plain = config.dt_bias.empty();
    std::vector<double> y(count * inner);
    for (size_t h = 0; h < config.heads; ++h) {
        std::vector<double> state(dim * size);
        const size_t group = h / (config.heads / config.groups);
        for (size_t t = 0; t < count; ++t) {
            const float* row = tokens.xbc.data() + t * tokens.width;
            const float* b = row + inner + group * size;
            const float* c = b + config.groups * size;
            double step = tokens.dt[t * config.heads + h];
            if (!plain)
                step = std::clamp(softplus(step + double(config.dt_bias[h])), double(config.dt_min),
                                  double(config.dt_max));
            const double decay = std::exp(double(config.a[h]) * step);
            for (size_t p = 0; p < dim; ++p) {
                const double x = row[h * dim + p];
                double sum = 0;
                for (size_t n = 0; n < size; ++n) {
                    double& s = state[p * size + n];
                    s = decay * s + step * x * double(b[n]);
                    sum += s * double(c[n]);
                }
                if (!plain) {
                    const double gate = tokens.gate[t * inner + h * dim + p];
                    sum = (sum + double(config.d[h]) * x) * gate / (1 + std::exp(-gate));
                }
                y[t * inner + h * dim + p] = sum;
            }
        }
    }
    return y;
}

/// What sequences give whose tokens come in calls of up to `most_tokens`, each from another state
/// than it writes or from the same. Some calls are split, and the next one goes on from the source,
/// as after wrong drafts.
std::vector<std::vector<float>> compute(const SelectiveSsmConfig& config,
                                        const std::vector<Tokens>& sequences, size_t most_tokens,
                                        Isa isa) {
    const size_t inner = config.heads * config.head_dim, slots = 2 * sequences.size();
    std::vector<uint8_t> states(slots * config.state_bytes(), 0xFF);  // each of them NaN
    std::vector<int32_t> slot(sequences.size(), -1);
    std::vector<size_t> done(sequences.size());
    std::vector<std::vector<float>> results(sequences.size());
    for (size_t call = 0;; ++call) {
        TableValues tables;
        std::vector<float> xbc, dt, gate;
        std::vector<size_t> taken, kept;
        for (size_t i = 0; i < sequences.size(); ++i) {
            const Tokens& tokens = sequences[i];
            const size_t left = tokens.dt.size() / config.heads - done[i];
            const size_t count = std::min(left, call % 2 ? most_tokens : (most_tokens + 1) / 2);
            if (count == 0) continue;
            tables.add(done[i], count, {});
            const auto target = int32_t(2 * i + call / 2 % 2);
            const bool splits = slot[i] >= 0 && slot[i] != target && call % 3 == 0 && count > 1;
            const size_t split = splits ? count / 2 : 0;
            tables.state_sources.push_back(slot[i]);
            tables.state_targets.push_back(target);
            tables.state_splits.push_back(int32_t(split));
            if (!splits) slot[i] = target;
            const auto append = [&](std::vector<float>& to, const std::vector<float>& from,
                                    size_t width) {
                to.insert(to.end(), from.begin() + long(done[i] * width),
                          from.begin() + long((done[i] + count) * width));
            };
            append(xbc, tokens.xbc, tokens.width);
            append(dt, tokens.dt, config.heads);
            append(gate, tokens.gate, inner);
            done[i] += splits ? split : count;
            taken.push_back(i);
            kept.push_back(splits ? split : count);
        }
        if (taken.empty()) return results;
        std::vector<int32_t> words(tables.num_words());
        tables.pack(words.data());
        const BatchTables read(words.data(), words.size(), 0);
        read.check_states(dt.size() / config.heads, slots);
        const size_t width = sequences[0].width;
        SelectiveSsmInput input;
        input.x = {xbc.data(), width};
        input.b = {xbc.data() + inner, width};
        input.c = {xbc.data() + inner + config.groups * config.state_size, width};
        input.dt = {dt.data(), config.heads};
        if (!config.dt_bias.empty()) input.gate = {gate.data(), inner};
        std::vector<float> y(gate.size());
        selective_ssm(config, read, input, states.data(), y.data(), isa);
        const float* from = y.data();
        for (size_t i = 0; i < taken.size(); ++i) {
            const size_t count =
                size_t(tables.subsequence_begins[i + 1]) - size_t(tables.subsequence_begins[i]);
            results[taken[i]].insert(results[taken[i]].end(), from, from + kept[i] * inner);
            from += count * inner;
        }
    }
}

std::vector<Tokens> make_sequences(const SelectiveSsmConfig& config) {
    std::vector<Tokens> sequences;
    for (const size_t count : {150, 1, 13, 64, 70})
        sequences.emplace_back(config, count, unsigned(count));
    return sequences;
}

const Shape shapes[] = {{1, 1, 1, 1}, {6, 8, 2, 16}, {4, 64, 1, 128}, {10, 20, 1, 24}};

TEST(SelectiveSsm, IsItsDefinitionHoweverSequencesAreCut) {
    for (const Isa isa : available_isas())
        for (const Shape& shape : shapes)
            for (const bool plain : {true, false}) {
                const SelectiveSsmConfig config = make_config(shape, plain);
                const std::vector<Tokens> sequences = make_sequences(config);
                for (const size_t most_tokens : {1000, 1, 7, 33, 128}) {
                    const auto results = compute(config, sequences, most_tokens, isa);
                    for (size_t i = 0; i < sequences.size(); ++i) {
                        const std::vector<double> expected = by_definition(config, sequences[i]);
                        ASSERT_EQ(results[i].size(), expected.size());
                        double largest = 1, error = 0;
                        for (size_t j = 0; j < expected.size(); ++j) {
                            largest = std::max(largest, std::abs(expected[j]));
                            const double off = std::abs(expected[j] - double(results[i][j]));
                            error = off <= error ? error : off;  // NaN is not
                        }
                        EXPECT_LT(error, 3e-6 * largest)
                            << isa.name() << ", " << shape.heads << " heads, by " << most_tokens;
                    }
                }
            }
}

TEST(SelectiveSsm, DoesNotDependOnCutsWhereItMustNot) {
    for (const Isa isa : available_isas()) {
        SelectiveSsmConfig config = make_config(shapes[1], false);
        config.batch_invariant = true;
        const std::vector<Tokens> sequences = make_sequences(config);
        const auto whole = compute(config, sequences, 1000, isa);
        for (const size_t most_tokens : {1, 33})
            EXPECT_EQ(compute(config, sequences, most_tokens, isa), whole) << isa.name();
    }
}

TEST(SelectiveSsm, RefusesConfigsWhosePartsDoNotFit) {
    const SelectiveSsmConfig good = make_config(shapes[1], false);
    EXPECT_NO_THROW(good.check());
    const auto refuses = [&](auto change) {
        SelectiveSsmConfig config = good;
        change(config);
        EXPECT_THROW(config.check(), std::runtime_error);
    };
    refuses([](auto& config) { config.groups = 4; });
    refuses([](auto& config) { config.state_size = 0; });
    refuses([](auto& config) { config.a.pop_back(); });
    refuses([](auto& config) { config.d.pop_back(); });
    refuses([](auto& config) { config.dt_bias.push_back(0); });
    refuses([](auto& config) { config.dt_min = 1; });
}

}  // namespace
}  // namespace pagewheel::kernels
