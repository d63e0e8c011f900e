// Layers of routed experts, beside a plain read of the weights that the router chose.
//
//     experts_benchmark [ROWS [ROUNDS [HIDDEN INNER EXPERTS ACTIVE LAYERS [mxfp4]]]]
//
// Weights are random: 4 bits in groups of 32 with f16 scales, or MXFP4. One matrix is packed again
// and again.
// The router chooses at random. Microseconds for all layers, medians; with activations in int8,
// int16 and as `auto` has them.
#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <iostream>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "kernels/experts.hpp"
#include "kernels/half.hpp"
#include "kernels/kernels.hpp"
#include "kernels/team.hpp"
#include "median.hpp"

namespace {

using namespace pagewheel;
using namespace pagewheel::kernels;
using benchmark::median;
using Clock = std::chrono::steady_clock;

struct Sizes {
    size_t rows = 1, rounds = 20, hidden = 2048, inner = 768, experts = 128, active = 8, layers = 3;
    bool mxfp4 = false;
};

/// A random matrix, packed as often as experts ask for it.
class Matrix {
public:
    Matrix(size_t n, size_t k, bool mxfp4, std::mt19937_64& random) : m_values(n * k / 16) {
        for (uint64_t& sixteen : m_values) sixteen = random();
        m_scales.resize(n * k / 32);
        for (float& scale : m_scales)
            scale = mxfp4 ? 0x1p-7f
                          : float_of_half(half_of_float(0.001f + float(random() % 1000) * 1e-5f));
        m_view.n = n;
        m_view.k = k;
        m_view.group = 32;
        m_view.type = mxfp4 ? WeightType::f4e2m1 : WeightType::i4;
        m_view.values = m_values.data();
        m_view.scales = m_scales.data();
    }
    PackedLinear pack(WeightMemory& memory) const { return PackedLinear(m_view, memory); }

private:
    std::vector<uint64_t> m_values;
    std::vector<float> m_scales;
    LinearWeights m_view;
};

std::vector<Experts> make_layers(const Sizes& sizes, std::mt19937_64& random) {
    const Matrix up(sizes.inner, sizes.hidden, sizes.mxfp4, random);
    const Matrix down(sizes.hidden, sizes.inner, sizes.mxfp4, random);
    static WeightMemory memory;
    std::vector<Experts> layers(sizes.layers);
    for (Experts& layer : layers)
        for (size_t e = 0; e < sizes.experts; ++e)
            layer.experts.push_back(
                {up.pack(memory), up.pack(memory), down.pack(memory), {}, {}, {}});
    return layers;
}

std::vector<uint32_t> choose(const Sizes& sizes, std::mt19937_64& random) {
    std::vector<uint32_t> numbers(sizes.experts), chosen;
    std::iota(numbers.begin(), numbers.end(), 0u);
    for (size_t r = 0; r < sizes.rows; ++r) {
        std::shuffle(numbers.begin(), numbers.end(), random);
        chosen.insert(chosen.end(), numbers.begin(), numbers.begin() + long(sizes.active));
    }
    return chosen;
}

uint64_t sum(const PackedLinear& weights, size_t tile) {
    const auto* words = reinterpret_cast<const uint64_t*>(weights.tile(tile));
    return std::accumulate(words, words + weights.tile_bytes() / 8, uint64_t(0));
}

/// Reads what the chosen experts of a layer have, each once. Returns how many bytes.
size_t read_plainly(const Experts& layer, const std::vector<uint32_t>& chosen) {
    static std::atomic<uint64_t> total;
    size_t bytes = 0;
    const std::set<uint32_t> numbers(chosen.begin(), chosen.end());
    std::vector<std::pair<const PackedLinear*, size_t>> tiles;
    for (const uint32_t number : numbers) {
        const Expert& expert = layer.experts[number];
        for (const PackedLinear* one : {&expert.gate, &expert.up, &expert.down}) {
            bytes += one->bytes();
            for (size_t tile = 0; tile < one->tiles(); ++tile) tiles.emplace_back(one, tile);
        }
    }
    run_phases(StreamPhase{tiles.size(),
                           [&](size_t i) { total += sum(*tiles[i].first, tiles[i].second); }});
    return bytes;
}

double microseconds_since(Clock::time_point begin) {
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
    Sizes sizes;
    size_t* const all[] = {&sizes.rows,    &sizes.rounds, &sizes.hidden, &sizes.inner,
                           &sizes.experts, &sizes.active, &sizes.layers};
    for (int i = 1; i < argc && i <= 7; ++i) *all[i - 1] = std::stoul(argv[i]);
    sizes.mxfp4 = argc > 8 && std::string(argv[8]) == "mxfp4";
    std::mt19937_64 random(1);
    const std::vector<Experts> layers = make_layers(sizes, random);
    std::vector<float> x(sizes.rows * sizes.hidden), output(x.size());
    std::normal_distribution<float> normal;
    for (float& value : x) value = normal(random);
    const std::vector<float> weights(sizes.rows * sizes.active, 1.0f / float(sizes.active));
    const Isa isa = detected_isa();
    using Choice = std::function<Activations(size_t)>;
    std::vector<std::pair<const char*, Choice>> precisions{
        {"int8", [](size_t) { return Activations::int8; }},
        {"int16", [](size_t) { return Activations::int16; }},
        {"auto", [&](size_t rows) {
             return choose_expert_activations(ActivationPrecision::automatic, sizes.rows, rows,
                                              sizes.mxfp4 ? WeightForm::other : WeightForm::u4,
                                              isa);
         }}};
    if (has_bf16_activations(isa))
        precisions.emplace_back("bf16", [](size_t) { return Activations::bf16; });
    std::vector<double> read, gigabytes;
    std::vector<std::vector<double>> times(precisions.size());
    for (size_t round = 0; round < sizes.rounds; ++round) {
        std::vector<std::vector<uint32_t>> chosen;
        for (size_t i = 0; i < sizes.layers; ++i) chosen.push_back(choose(sizes, random));
        auto begin = Clock::now();
        size_t bytes = 0;
        for (size_t i = 0; i < sizes.layers; ++i) bytes += read_plainly(layers[i], chosen[i]);
        read.push_back(microseconds_since(begin));
        gigabytes.push_back(double(bytes) * 1e-9);
        for (size_t p = 0; p < precisions.size(); ++p) {
            begin = Clock::now();
            for (size_t i = 0; i < sizes.layers; ++i)
                routed_experts_by(isa.kernels().linear, {x.data(), sizes.rows}, layers[i],
                                  {sizes.active, chosen[i].data(), weights.data()},
                                  precisions[p].second, output.data(), nullptr);
            times[p].push_back(microseconds_since(begin));
        }
    }
    const double products = double(sizes.rows * sizes.active * sizes.layers) * 3 *
                            double(sizes.hidden * sizes.inner) * 2;
    std::cout << "rows " << sizes.rows << ": read " << median(read) << " us, "
              << median(gigabytes) / median(read) * 1e6 << " GB/s\n";
    for (size_t p = 0; p < precisions.size(); ++p)
        std::cout << "  " << precisions[p].first << " " << median(times[p]) << " us, "
                  << median(gigabytes) / median(times[p]) * 1e6 << " GB/s, "
                  << products / median(times[p]) * 1e-6 << " tera-operations a second\n";
}
