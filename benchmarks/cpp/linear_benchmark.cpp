// The linear layers of a decode step, beside a plain read of the same weights.
//
//     linear_benchmark [ROWS [ROUNDS [HIDDEN KV INNER LAYERS VOCABULARY]]]
//
// Weights are random: Q4_1 (4 bits, groups of 32, f16 scales and minima), the head in 8 bits. Each
// round reads all of them plainly, then runs all layers as a step does: with activations in int8,
// in int16 and, from 8 rows on and where the processor has it, in bf16. Microseconds, medians.
// Beside them stands what the processor's instructions give at best, measured in each round too.
#include <tbb/task_arena.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/half.hpp"
#include "kernels/quantized_linear.hpp"
#include "kernels/team.hpp"
#include "median.hpp"
#include "peak_rates.hpp"

namespace {

using namespace pagewheel;
using namespace pagewheel::kernels;
using benchmark::median;
using Clock = std::chrono::steady_clock;
using Weights = std::unique_ptr<PackedLinear>;

double microseconds_since(Clock::time_point begin) {
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

/// A random matrix, packed as often as layers ask for it.
class Matrix {
public:
    Matrix(size_t n, size_t k, WeightType type, std::mt19937_64& random) {
        const bool four = type == WeightType::u4;
        m_values.resize(n * k / (four ? 16 : 8));
        for (uint64_t& eight : m_values) eight = random();
        m_view.n = n;
        m_view.k = k;
        m_view.group = 32;
        m_view.type = type;
        m_scales.resize(n * m_view.groups());
        for (float& scale : m_scales)
            scale = float_of_half(half_of_float(0.001f + float(random() % 1000) * 1e-5f));
        if (four)
            for (const float scale : m_scales)
                m_zeros.push_back(-float_of_half(half_of_float(-7.3f * scale)) / scale);
        m_view.values = m_values.data();
        m_view.scales = m_scales.data();
        m_view.zero_points = four ? m_zeros.data() : nullptr;
    }
    Weights pack(WeightMemory& memory) const {
        return std::make_unique<PackedLinear>(m_view, memory);
    }

private:
    LinearWeights m_view;
    std::vector<uint64_t> m_values;
    std::vector<float> m_scales, m_zeros;
};

struct Layer {
    Weights q, k, v, o, gate, up, down;
};

struct Model {
    size_t hidden, kv, inner, vocabulary;
    std::vector<Layer> layers;
    Weights head;

    std::vector<const PackedLinear*> matrices() const {
        std::vector<const PackedLinear*> all;
        for (const Layer& l : layers)
            for (const Weights* one : {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down})
                all.push_back(one->get());
        all.push_back(head.get());
        return all;
    }
};

Model make_model(size_t hidden, size_t kv, size_t inner, size_t layers, size_t vocabulary) {
    std::mt19937_64 random(1);
    const auto matrix = [&](size_t n, size_t k) { return Matrix(n, k, WeightType::u4, random); };
    const Matrix square = matrix(hidden, hidden), narrow = matrix(kv, hidden);
    const Matrix wide = matrix(inner, hidden), deep = matrix(hidden, inner);
    WeightMemory memory;
    Model model{hidden, kv, inner, vocabulary, {}, {}};
    for (size_t i = 0; i < layers; ++i) {
        Layer layer;
        layer.q = square.pack(memory);
        layer.k = narrow.pack(memory);
        layer.v = narrow.pack(memory);
        layer.o = square.pack(memory);
        layer.gate = wide.pack(memory);
        layer.up = wide.pack(memory);
        layer.down = deep.pack(memory);
        model.layers.push_back(std::move(layer));
    }
    model.head = Matrix(vocabulary, hidden, WeightType::i8, random).pack(memory);
    return model;
}

uint64_t sum(const uint8_t* bytes, size_t n) {
    const auto* words = reinterpret_cast<const uint64_t*>(bytes);
    uint64_t sums[32] = {};
    for (size_t i = 0; i + 32 <= n / 8; i += 32)
        for (size_t j = 0; j < 32; ++j) sums[j] += words[i + j];
    uint64_t total = 0;
    for (const uint64_t one : sums) total += one;
    return total;
}

/// Each thread reads its part of each matrix.
uint64_t read_plainly(const Model& model) {
    const auto all = model.matrices();
    const auto threads = size_t(tbb::this_task_arena::max_concurrency());
    std::vector<uint64_t> sums(threads);
    run_phases(Phase{threads, [&](size_t t) {
                         for (const PackedLinear* one : all) {
                             const size_t begin = one->tiles() * t / threads;
                             const size_t end = one->tiles() * (t + 1) / threads;
                             sums[t] += sum(one->tile(begin), (end - begin) * one->tile_bytes());
                         }
                     }});
    return sums[0];
}

struct Times {
    std::vector<double> qkv, o, mlp, head, whole;
};

class Step {
public:
    Step(const Model& model, size_t rows)
        : m_model(model),
          m_rows(rows),
          m_x(rows * model.hidden, 0.5f),
          m_q(rows * model.hidden),
          m_k(rows * model.kv),
          m_v(rows * model.kv),
          m_logits(rows * model.vocabulary),
          m_gamma(model.hidden, 1.0f) {
        std::mt19937 random(2);
        for (float& x : m_x) x = float(random() % 1000) * 1e-3f - 0.5f;
    }

    void run(Activations activations, Times& times) {
        const Isa isa = detected_isa();
        const LinearInput x{m_x.data(), m_rows, m_gamma.data(), 1e-5f, activations};
        const LinearInput plain{m_x.data(), m_rows, nullptr, 0, activations};
        double qkv = 0, o = 0, mlps = 0;
        const auto begin = Clock::now();
        for (const Layer& layer : m_model.layers) {
            auto start = Clock::now();
            const LinearOutput three[] = {{layer.q.get(), m_q.data()},
                                          {layer.k.get(), m_k.data()},
                                          {layer.v.get(), m_v.data()}};
            quantized_linear(x, three, 3, isa);
            qkv += microseconds_since(start);
            start = Clock::now();
            const LinearOutput out{layer.o.get(), m_q.data()};
            quantized_linear(plain, &out, 1, isa);
            o += microseconds_since(start);
            start = Clock::now();
            GatedMlp mlp;
            mlp.gate = layer.gate.get();
            mlp.up = layer.up.get();
            mlp.down = layer.down.get();
            mlp.output = m_q.data();
            gated_mlp(x, mlp, isa);
            mlps += microseconds_since(start);
        }
        const auto start = Clock::now();
        const LinearOutput out{m_model.head.get(), m_logits.data()};
        quantized_linear(x, &out, 1, isa);
        times.head.push_back(microseconds_since(start));
        times.whole.push_back(microseconds_since(begin));
        times.qkv.push_back(qkv);
        times.o.push_back(o);
        times.mlp.push_back(mlps);
    }

private:
    const Model& m_model;
    size_t m_rows;
    std::vector<float> m_x, m_q, m_k, m_v, m_logits, m_gamma;
};

/// `read`: microseconds of the plain read; `products`: multiplications of a step.
void report(const char* name, const Times& times, double read, double products) {
    const double whole = median(times.whole);
    std::cout << name << " step " << whole << " (" << read / whole
              << " of the read's speed, tera-operations a second " << 2 * products / whole * 1e-6
              << "): qkv " << median(times.qkv) << ", o " << median(times.o) << ", mlp "
              << median(times.mlp) << ", head " << median(times.head) << "\n";
}

}  // namespace

int main(int argc, char** argv) {
    std::vector<size_t> sizes{1, 100, 576, 192, 1536, 30, 49152};
    for (int i = 1; i < argc && i <= int(sizes.size()); ++i)
        sizes[size_t(i) - 1] = std::stoul(argv[i]);
    const Model model = make_model(sizes[2], sizes[3], sizes[4], sizes[5], sizes[6]);
    Step step(model, sizes[0]);
    const bool with_bf16 = sizes[0] >= 8 && has_bf16_activations(detected_isa());
    std::vector<double> read;
    Times int8, int16, bf16;
    std::map<std::string, std::vector<double>> peaks;
    uint64_t total = 0;
    for (size_t i = 0; i < sizes[1]; ++i) {
        const auto begin = Clock::now();
        total += read_plainly(model);
        read.push_back(microseconds_since(begin));
        step.run(Activations::int8, int8);
        step.run(Activations::int16, int16);
        if (with_bf16) step.run(Activations::bf16, bf16);
        for (const benchmark::PeakRate& rate : benchmark::peak_rates())
            peaks[rate.instruction].push_back(rate.tera);
    }
    size_t bytes = 0;
    double products = 0;
    for (const PackedLinear* one : model.matrices()) {
        bytes += one->bytes();
        products += double(sizes[0]) * double(one->n()) * double(one->k());
    }
    std::cout << "rows " << sizes[0] << ", MB " << double(bytes) * 1e-6 << ", plain read "
              << median(read) << " (" << double(bytes) / median(read) * 1e-3 << " GB/s)\n";
    report("int8", int8, median(read), products);
    report("int16", int16, median(read), products);
    if (with_bf16) report("bf16", bf16, median(read), products);
    std::cout << "peak, tera-operations a second:";
    for (const auto& [instruction, tera] : peaks)
        std::cout << " " << instruction << " " << median(tera);
    std::cout << "\n";
    return total == 1;
}
