// The gated delta rule alone, in layers of Qwen3.5 0.8B's shape: 16 heads of 128 by 128, 18 layers.
//
//     gated_delta_benchmark [ROUNDS [TOKENS[xSEQUENCES][c]]...]
//
// For each number of new tokens of so many sequences (1) microseconds a token for all layers,
// median and least; operations a second, of those that the recurrence has; and the bytes of states
// that such a call reads and writes at least. With c decays are by channel, as in Kimi Linear.
#include <algorithm>
#include <chrono>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "kernels/gated_delta_rule.hpp"
#include "median.hpp"
#include "support/packed_tables.hpp"

namespace {

using namespace pagewheel;
using namespace pagewheel::kernels;
using Clock = std::chrono::steady_clock;

constexpr size_t layers = 18, heads = 16, size = 128, width = heads * size;

GatedDeltaRuleConfig make_config(bool by_channel) {
    GatedDeltaRuleConfig config;
    config.key_heads = config.value_heads = heads;
    config.key_size = config.value_size = size;
    config.query_epsilon = config.key_epsilon = 1e-6f;
    config.decay_rates.assign(heads, -1);
    config.decay_by_channel = by_channel;
    config.decay_bias.assign(config.decay_width(), -2);
    config.beta_is_logit = true;
    config.norm_weight.assign(size, 1);
    config.norm_epsilon = 1e-6f;
    return config;
}

std::vector<int32_t> tables_of(size_t tokens, size_t sequences) {
    TableValues tables;
    for (size_t s = 0; s < sequences; ++s) {
        tables.add(0, tokens, {});
        tables.state_sources.push_back(int32_t(s));
    }
    tables.state_targets = tables.state_sources;
    std::vector<int32_t> words(tables.num_words());
    tables.pack(words.data());
    return words;
}

void measure(size_t tokens, size_t sequences, size_t rounds, bool by_channel) {
    const GatedDeltaRuleConfig config = make_config(by_channel);
    const size_t decays = config.decay_width();
    const size_t all = tokens * sequences;
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> rows(all * 3 * width), z(all * width), gates(all * (decays + heads));
    std::vector<float> y(all * width);
    for (float& value : rows) value = normal(random);
    for (float& value : z) value = normal(random);
    for (float& value : gates) value = normal(random);
    const std::vector<uint8_t> zeros(sequences * config.state_bytes());
    std::vector<std::vector<uint8_t>> states(layers, zeros);
    std::vector<int32_t> words = tables_of(tokens, sequences);
    const BatchTables tables(words.data(), words.size(), 0);
    const auto part = [&](size_t i) { return StridedRows{rows.data() + i * width, 3 * width}; };
    const GatedDeltaInputs inputs{part(0),
                                  part(1),
                                  part(2),
                                  {gates.data(), decays + heads},
                                  {gates.data() + decays, decays + heads},
                                  {z.data(), width}};
    std::vector<double> times;
    for (size_t round = 0; round <= rounds; ++round) {  // the first is warm-up
        const auto begin = Clock::now();
        for (auto& state : states) gated_delta_rule(config, tables, inputs, state.data(), y.data());
        const std::chrono::duration<double, std::micro> taken = Clock::now() - begin;
        if (round > 0) times.push_back(taken.count() / double(all));
    }
    const double time = benchmark::median(times);
    const double operations = 6.0 * size * size * heads * layers;
    std::cout << tokens << " tokens of " << sequences << ": " << time << " us a token, least "
              << *std::min_element(times.begin(), times.end()) << "; " << operations / time * 1e-3
              << " G operations/s; states "
              << 2.0 * double(config.state_bytes() * layers) / time / double(tokens) * 1e-3
              << " GB/s\n";
}

}  // namespace

int main(int argc, char** argv) {
    const size_t rounds = argc > 1 ? std::stoul(argv[1]) : 11;
    std::vector<std::string> all(argv + std::min(argc, 2), argv + argc);
    if (all.empty()) all = {"1", "2", "8", "512", "1x8", "1x32", "1c", "512c"};
    for (const std::string& each : all) {
        const size_t x = each.find('x');
        measure(std::stoul(each), x == std::string::npos ? 1 : std::stoul(each.substr(x + 1)),
                rounds, each.back() == 'c');
    }
}
