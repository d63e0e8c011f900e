// Short convolutions against their definition in double precision.
#include "kernels/short_convolution.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "support/kernel_access.hpp"
#include "support/packed_tables.hpp"

namespace pagewheel::kernels {
namespace {

std::vector<float> normal(size_t size, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> distribution;
    std::vector<float> values(size);
    for (float& value : values) value = distribution(random);
    return values;
}

ShortConvolutionConfig make_config(size_t channels, size_t length, bool bias) {
    ShortConvolutionConfig config;
    config.channels = channels;
    config.length = length;
    config.weights = normal(length * channels, 1);
    if (bias) config.bias = normal(channels, 2);
    return config;
}

/// Of one whole sequence.
std::vector<double> by_definition(const ShortConvolutionConfig& config,
                                  const std::vector<float>& x) {
    const size_t tokens = x.size() / config.channels;
    std::vector<double> y(x.size());
    for (size_t t = 0; t < tokens; ++t)
        for (size_t c = 0; c < config.channels; ++c) {
            double sum = config.bias.empty() ? 0.0 : double(config.bias[c]);
            for (size_t back = 0; back < config.length && back <= t; ++back)
                sum += double(config.weights[(config.length - 1 - back) * config.channels + c]) *
                       double(x[(t - back) * config.channels + c]);
            y[t * config.channels + c] = config.silu ? sum / (1 + std::exp(-sum)) : sum;
        }
    return y;
}

/// Some sequences whose tokens come in calls of any sizes, with states that move about.
class Batches {
public:
    Batches(const ShortConvolutionConfig& config, std::vector<size_t> lengths, unsigned seed,
            Isa isa)
        : m_config(config), m_random(seed), m_isa(isa) {
        for (const size_t length : lengths) {
            m_sequences.push_back({normal(length * config.channels, seed + 10), {}, 0, -1});
            m_sequences.back().y.resize(length * config.channels);
        }
        m_states.resize(2 * lengths.size() * config.state_bytes(), 0xFF);  // each of them NaN
        for (size_t i = 0; i < 2 * lengths.size(); ++i) m_free.push_back(int32_t(i));
    }

    void compute(size_t most_tokens) {
        while (step(most_tokens)) {
        }
    }

    double largest_error() const {
        double largest = 0;
        for (const Sequence& sequence : m_sequences) {
            const auto expected = by_definition(m_config, sequence.x);
            for (size_t i = 0; i < expected.size(); ++i) {
                const double error = std::abs(expected[i] - double(sequence.y[i]));
                largest = error <= largest ? largest : error;  // NaN is not
            }
        }
        return largest;
    }
    const std::vector<float>& y(size_t sequence) const { return m_sequences[sequence].y; }

private:
    struct Sequence {
        std::vector<float> x, y;
        size_t done = 0;
        int32_t state = -1;
    };

    bool step(size_t most_tokens) {
        TableValues tables;
        std::vector<std::tuple<Sequence*, size_t, size_t>> parts;
        std::vector<float> x;
        for (Sequence& sequence : m_sequences) {
            const size_t left = sequence.x.size() / m_config.channels - sequence.done;
            if (left == 0 || (most_tokens > 1 && m_random() % 3 == 0)) continue;
            const size_t count = std::min(left, most_tokens);
            tables.add(sequence.done, count, {});
            // In place, or into another one as where a state is shared or there are drafts. After a
            // split the sequence goes on from the source, as where those were wrong.
            const int32_t source = sequence.state;
            int32_t target = source;
            size_t split = 0;
            if (source < 0 || m_random() % 2 == 0) {
                target = m_free.back();
                m_free.pop_back();
                split = source < 0 || m_random() % 2 ? 0 : m_random() % count;
                sequence.state = split > 0 ? source : target;
                const int32_t left = split > 0 ? target : source;
                if (left >= 0) m_free.insert(m_free.begin(), left);
            }
            tables.state_sources.push_back(source);
            tables.state_targets.push_back(target);
            tables.state_splits.push_back(int32_t(split));
            parts.emplace_back(&sequence, count, split > 0 ? split : count);
            const auto begin = sequence.x.begin() + long(sequence.done * m_config.channels);
            x.insert(x.end(), begin, begin + long(count * m_config.channels));
        }
        if (parts.empty()) return left();
        std::vector<int32_t> words(tables.num_words());
        tables.pack(words.data());
        const BatchTables read(words.data(), words.size(), 0);
        read.check_states(x.size() / m_config.channels, 2 * m_sequences.size());
        std::vector<float> y(x.size());
        short_convolution(m_config, read, x.data(), m_states.data(), y.data(), m_isa);
        const float* from = y.data();
        for (const auto& [sequence, count, num_kept] : parts) {
            std::copy_n(from, count * m_config.channels,
                        sequence->y.data() + sequence->done * m_config.channels);
            from += count * m_config.channels;
            sequence->done += num_kept;
        }
        return left();
    }

    bool left() const {
        for (const Sequence& sequence : m_sequences)
            if (sequence.done * m_config.channels < sequence.x.size()) return true;
        return false;
    }

    const ShortConvolutionConfig& m_config;
    std::mt19937 m_random;
    const Isa m_isa;
    std::vector<Sequence> m_sequences;
    std::vector<uint8_t> m_states;
    std::vector<int32_t> m_free;
};

TEST(ShortConvolution, IsItsDefinitionHoweverSequencesAreCut) {
    for (const auto& [channels, length, more] :
         {std::tuple(1, 2, false), std::tuple(96, 3, false), std::tuple(700, 4, true)})
        for (const Isa isa : available_isas()) {
            ShortConvolutionConfig config = make_config(size_t(channels), size_t(length), more);
            config.silu = more;
            Batches whole(config, {40, 1, 33, 2}, 5, isa);
            whole.compute(1000);
            EXPECT_LT(whole.largest_error(), 5e-6) << isa.name();
            for (const size_t most_tokens : {1, 2, 3, 7, 33}) {
                Batches parts(config, {40, 1, 33, 2}, 5, isa);
                parts.compute(most_tokens);
                for (size_t s = 0; s < 4; ++s)
                    EXPECT_EQ(parts.y(s), whole.y(s))
                        << isa.name() << ", " << channels << " by " << most_tokens;
            }
        }
}

TEST(ShortConvolution, RefusesWeightsThatAreTooFew) {
    ShortConvolutionConfig config = make_config(8, 3, true);
    EXPECT_NO_THROW(config.check());
    config.bias.pop_back();
    EXPECT_THROW(config.check(), std::runtime_error);
    config = make_config(8, 3, false);
    config.length = 4;
    EXPECT_THROW(config.check(), std::runtime_error);
}

TEST(BatchTables, RefuseStatesThatAreNoneOrAnothers) {
    const auto check = [](std::vector<int32_t> sources, std::vector<int32_t> targets,
                          std::vector<int32_t> splits = {0, 0}) {
        TableValues values;
        values.add(3, 2, {});
        values.add(0, 5, {});
        values.state_sources = std::move(sources);
        values.state_targets = std::move(targets);
        values.state_splits = std::move(splits);
        std::vector<int32_t> words(values.num_words());
        values.pack(words.data());
        BatchTables(words.data(), words.size(), 0).check_states(7, 4);
    };
    EXPECT_NO_THROW(check({3, -1}, {3, 0}));
    EXPECT_NO_THROW(check({3, 3}, {1, 0}));
    EXPECT_THROW(check({}, {}), std::runtime_error);
    EXPECT_THROW(check({3, -1}, {3, 4}), std::runtime_error);
    EXPECT_THROW(check({3, -1}, {3, -1}), std::runtime_error);
    EXPECT_THROW(check({-2, -1}, {3, 0}), std::runtime_error);
    EXPECT_THROW(check({-1, -1}, {3, 3}), std::runtime_error);
    EXPECT_THROW(check({0, -1}, {3, 0}), std::runtime_error);
    EXPECT_NO_THROW(check({2, 3}, {1, 0}, {1, 4}));
    EXPECT_THROW(check({3, 3}, {1, 0}, {1, 0}), std::runtime_error) << "another reads it";
    EXPECT_THROW(check({3, 3}, {1, 0}, {1, 1}), std::runtime_error);
    EXPECT_THROW(check({1, 3}, {1, 0}, {1, 0}), std::runtime_error) << "in place";
    EXPECT_THROW(check({2, -1}, {1, 0}, {0, 1}), std::runtime_error) << "after none";
    EXPECT_THROW(check({2, 3}, {1, 0}, {2, 0}), std::runtime_error) << "after all";
    EXPECT_THROW(check({2, 3}, {1, 0}, {-1, 0}), std::runtime_error);
    EXPECT_THROW(check({2, 3}, {1, 0}, {}), std::runtime_error);
}

}  // namespace
}  // namespace pagewheel::kernels
