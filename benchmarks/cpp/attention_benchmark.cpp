// The attention operation alone: backend `openvino` beside `native`, alternating in one process.
#include <tbb/task_arena.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "attention_runner.hpp"
#include "base/check.hpp"
#include "cache/cache_size.hpp"
#include "kernels/isa.hpp"
#include "median.hpp"
#include "options.hpp"
#include "read_bandwidth.hpp"

namespace pagewheel::benchmark {
namespace {

constexpr size_t min_cache_bytes = size_t{256} << 20, max_layers = 32;
constexpr double least_measured_seconds = 5e-3;

/// What was measured, by name: one number per round.
using Samples = std::map<std::string, std::vector<double>>;

/// Median over rounds of a / b within the round: a machine that slows down slows both.
double ratio(const Samples& samples, const std::string& a, const std::string& b) {
    std::vector<double> ratios;
    for (size_t i = 0; i < samples.at(a).size(); ++i)
        ratios.push_back(samples.at(a)[i] / samples.at(b)[i]);
    return median(ratios);
}

struct Case {
    std::string format, name;
    size_t layers = 1, tokens = 0, context_tokens = 0;
    bool decode = true;
};

class Benchmark {
public:
    explicit Benchmark(Options options)
        : m_options(std::move(options)),
          m_threads(m_options.threads ? m_options.threads
                                      : tbb::this_task_arena::max_concurrency()),
          m_bandwidth(size_t{256} << 20, m_threads),
          m_memory(m_options.memory_gb ? m_options.memory_gb * 1e9
                                       : double(available_memory()) / 2) {}

    void run() {
        print_header();
        for (const std::string& format : m_options.formats) {
            for (size_t context : m_options.contexts)
                for (size_t batch : m_options.batches) decode(format, context, batch);
            for (size_t tokens : m_options.prefills) prefill(format, tokens);
        }
        if (m_options.json.empty()) return;
        std::ofstream(m_options.json) << m_record.dump(1) << "\n";
    }

private:
    RunnerOptions runner_options(const std::string& format, size_t layers) const {
        std::string precision = m_options.openvino_precision;
        if (precision.empty()) precision = format == "f32" ? "f32" : "bf16";
        return {m_options.shape, format, ov::element::Type(precision), layers, m_threads};
    }

    void decode(const std::string& format, size_t context, size_t batch_size) {
        const AttentionRunner probe(m_core, Backend::native, runner_options(format, 1));
        const size_t blocks_each = (context + probe.block_size() - 1) / probe.block_size();
        const size_t layer_bytes = blocks_each * batch_size * probe.block_bytes();
        const size_t enough = (min_cache_bytes + layer_bytes - 1) / layer_bytes;
        const size_t layers = m_options.layers ? m_options.layers : std::min(max_layers, enough);
        Case one{format,
                 concat("decode ", batch_size, " x ", context),
                 layers,
                 batch_size,
                 batch_size * context,
                 true};
        if (2.0 * double(layer_bytes * layers) > m_memory) {
            std::printf("%-5s %-18s needs %.1f GB, more than --memory-gb\n", format.c_str(),
                        one.name.c_str(), 2e-9 * double(layer_bytes * layers));
            return;
        }
        Batch batch;
        for (size_t s = 0; s < batch_size; ++s) {
            std::vector<int32_t> blocks;  // interleaved, as sequences that decode together do
            for (size_t i = 0; i < blocks_each; ++i) blocks.push_back(int32_t(i * batch_size + s));
            batch.add(context - 1, 1, blocks);
        }
        measure(one, batch, context >= m_options.rotate_from);
    }

    void prefill(const std::string& format, size_t tokens) {
        constexpr size_t block_size = 32;
        Batch batch;
        std::vector<int32_t> blocks;
        for (size_t i = 0; i * block_size < tokens; ++i) blocks.push_back(int32_t(i));
        batch.add(0, tokens, blocks);
        const size_t layers = m_options.layers ? m_options.layers : 1;
        measure({format, concat("prefill ", tokens), layers, tokens, tokens, false}, batch, false);
    }

    void measure(const Case& one, const Batch& batch, bool rotate) {
        const RunnerOptions options = runner_options(one.format, one.layers);
        AttentionRunner openvino(m_core, Backend::openvino, options);
        AttentionRunner native(m_core, Backend::native, options);
        EmptyRunner empty(m_core, options, one.tokens);
        const size_t blocks =
            size_t(*std::max_element(batch.blocks().begin(), batch.blocks().end())) + 1;
        for (AttentionRunner* runner : {&openvino, &native}) {
            runner->fill_cache(blocks);
            runner->set_batch(batch);
        }
        struct Variant {
            std::string name;
            std::function<double()> infer;
            std::function<void()> prepare;
        };
        std::vector<Variant> variants{
            {"openvino", [&] { return openvino.infer(); }, [] {}},
            {"native", [&] { return native.infer(); }, [&] { native.set_batch(batch); }},
            {"empty", [&] { return empty.infer(); }, [] {}}};
        if (rotate)
            variants.push_back({"rotated", [&] { return native.infer(); },
                                [&] { native.set_batch(batch, true); }});
        Samples samples;
        for (size_t round = 0; round < m_options.rounds; ++round) {
            samples["bandwidth"].push_back(m_bandwidth.measure());
            for (const Variant& variant : variants) {
                variant.prepare();
                samples[variant.name].push_back(mean_time(variant.infer) / double(one.layers));
            }
            std::reverse(variants.begin(), variants.end());
        }
        report(one, samples, {openvino.block_bytes(), native.block_bytes()}, openvino.block_size());
    }

    /// Of enough inferences to be measured, after one that is not.
    static double mean_time(const std::function<double()>& infer) {
        infer();
        double sum = 0;
        size_t count = 0;
        for (; sum < least_measured_seconds; ++count) sum += infer();
        return sum / double(count);
    }

    void print_header() const {
        const AttentionShape& shape = m_options.shape;
        std::printf("%zu heads, %zu kv heads, head size %zu; %d threads, %s; %zu rounds\n",
                    shape.heads, shape.kv_heads, shape.head_size, m_threads, detected_isa().name(),
                    m_options.rounds);
        std::printf("us of an inference per layer; cache read GB/s; ratio = openvino / native\n");
        std::printf("%-5s %-18s %6s %8s | %11s %9s %6s | %8s | %8s %6s %6s %6s | %7s\n", "cache",
                    "case", "layers", "cache MB", "openvino us", "native us", "ratio", "empty us",
                    "openvino", "native", "memory", "of it", "rotated");
    }

    void report(const Case& one, const Samples& samples, std::pair<size_t, size_t> block_bytes,
                size_t block_size) {
        const double tokens = double(one.context_tokens) / double(block_size);
        // Of all layers; times are per layer.
        const double openvino_bytes = tokens * double(block_bytes.first);
        const double native_bytes = tokens * double(block_bytes.second);
        const double openvino = median(samples.at("openvino"));
        const double native = median(samples.at("native"));
        const double memory = median(samples.at("bandwidth"));
        const double layers = double(one.layers);
        std::printf("%-5s %-18s %6zu %8.1f | %11.1f %9.1f %6.2f | %8.1f |", one.format.c_str(),
                    one.name.c_str(), one.layers, native_bytes * 1e-6, openvino * 1e6, native * 1e6,
                    ratio(samples, "openvino", "native"), median(samples.at("empty")) * 1e6);
        nlohmann::json record{{"cache", one.format},
                              {"case", one.name},
                              {"layers", one.layers},
                              {"cache_bytes", native_bytes},
                              {"openvino_cache_bytes", openvino_bytes},
                              {"openvino_over_native", ratio(samples, "openvino", "native")},
                              {"seconds_per_layer_and_bytes_per_second", samples}};
        if (one.decode) {
            const double native_rate = native_bytes / layers / native;
            std::printf(" %8.1f %6.1f %6.1f %5.0f%% |", openvino_bytes / layers / openvino * 1e-9,
                        native_rate * 1e-9, memory * 1e-9, 100 * native_rate / memory);
        } else {
            const double heads = double(m_options.shape.heads * m_options.shape.head_size);
            const double operations = 2 * heads * double(one.tokens) * double(one.tokens);
            std::printf(" %.3f and %.3f TFLOPS         |", operations / openvino * 1e-12,
                        operations / native * 1e-12);
        }
        if (samples.count("rotated")) {
            record["rotated_over_native"] = ratio(samples, "rotated", "native");
            std::printf(" %+6.1f%%", 100 * (ratio(samples, "rotated", "native") - 1));
        }
        std::printf("\n");
        std::fflush(stdout);
        m_record.push_back(record);
    }

    Options m_options;
    int m_threads;
    ov::Core m_core;
    ReadBandwidth m_bandwidth;
    double m_memory;
    nlohmann::json m_record = nlohmann::json::array();
};

}  // namespace
}  // namespace pagewheel::benchmark

int main(int count, char** arguments) {
    using namespace pagewheel::benchmark;
    try {
        const Options options = parse_options(count, arguments);
        if (options.help) {
            std::fputs(usage(), stdout);
            return 0;
        }
        Benchmark(options).run();
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "attention_benchmark: %s\n", error.what());
        return 1;
    }
}
