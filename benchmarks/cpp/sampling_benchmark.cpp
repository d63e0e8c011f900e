// Microseconds that choosing a token from a row of logits takes, by way of sampling.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "median.hpp"
#include "sampling/sampler.hpp"

namespace pagewheel::benchmark {
namespace {

using Rows = std::vector<std::vector<float>>;

struct Way {
    const char* name;
    const char* config;  ///< JSON
};
constexpr Way ways[] = {
    {"greedy", R"({})"},
    {"no filter", R"({"do_sample": true})"},
    {"top_k 50", R"({"do_sample": true, "top_k": 50})"},
    {"top_k 5000", R"({"do_sample": true, "top_k": 5000})"},
    {"top_p 0.95", R"({"do_sample": true, "top_p": 0.95})"},
    {"min_p 0.05", R"({"do_sample": true, "min_p": 0.05})"},
    {"top_k 50, top_p 0.95", R"({"do_sample": true, "top_k": 50, "top_p": 0.95})"},
    {"typical_p 0.95", R"({"do_sample": true, "typical_p": 0.95})"},
    {"top_n_sigma 2", R"({"do_sample": true, "top_n_sigma": 2})"},
    {"xtc 1, 0.1", R"({"do_sample": true, "xtc_probability": 1, "xtc_threshold": 0.1})"},
    {"dynatemp_range 0.5", R"({"do_sample": true, "dynatemp_range": 0.5})"},
    {"mirostat 2", R"({"do_sample": true, "mirostat": 2})"},
};

/// More than a processor's second cache holds, as a step leaves them. Flat: normal, of deviation 1.
/// Peaked: of deviation 3, and the best 20 by 1 to 8 better, so that one has most of the weight.
Rows make_rows(size_t vocabulary, bool peaked) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0.0f, peaked ? 3.0f : 1.0f);
    Rows rows(4, std::vector<float>(vocabulary));
    for (auto& row : rows) {
        for (float& logit : row) logit = normal(random);
        if (!peaked) continue;
        std::vector<size_t> order(vocabulary);
        for (size_t i = 0; i < vocabulary; ++i) order[i] = i;
        std::partial_sort(order.begin(), order.begin() + 20, order.end(),
                          [&](size_t a, size_t b) { return row[a] > row[b]; });
        for (size_t i = 0; i < 20; ++i) row[order[i]] += 1 + 7 / float(1 + i);
    }
    return rows;
}

/// Median microseconds per row.
double measure(const GenerationConfig& config, Rows& rows, size_t calls) {
    Sampler sampler(config, 0, detected_isa());
    const std::vector<int64_t> tokens{1};
    std::vector<double> times;
    for (size_t i = 0; i < calls + rows.size(); ++i) {
        std::vector<float>& row = rows[i % rows.size()];
        const auto begin = std::chrono::steady_clock::now();
        sampler.sample({tokens, 1}, row.data(), row.size());
        const std::chrono::duration<double, std::micro> time =
            std::chrono::steady_clock::now() - begin;
        if (i >= rows.size()) times.push_back(time.count());
    }
    return median(times);
}

std::string measure_way(const Way& way, Rows& rows, size_t calls) {
    GenerationConfig config;
    config.update_from_json(way.config);
    config.rng_seed = 1;
    char text[32];
    std::snprintf(text, sizeof text, "%.1f", measure(config, rows, calls));
    return text;
}

int run(size_t calls, const std::string& wanted) {
    std::printf("%s, one thread, microseconds per row (median of %zu)\n\n", detected_isa().name(),
                calls);
    std::printf(
        "| | 49,152 peaked | 49,152 flat | 262,144 peaked | 262,144 flat "
        "|\n|---|---|---|---|---|\n");
    Rows all[] = {make_rows(49152, true), make_rows(49152, false), make_rows(262144, true),
                  make_rows(262144, false)};
    for (const Way& way : ways) {
        if (std::string(way.name).find(wanted) == std::string::npos) continue;
        std::printf("| %s |", way.name);
        for (Rows& rows : all) std::printf(" %s |", measure_way(way, rows, calls).c_str());
        std::printf("\n");
        std::fflush(stdout);
    }
    return 0;
}

}  // namespace
}  // namespace pagewheel::benchmark

int main(int count, char** arguments) {
    const int calls = count > 1 ? std::atoi(arguments[1]) : 200;
    if (count > 3 || calls < 1) {
        std::fprintf(stderr, "usage: sampling_benchmark [CALLS [PART_OF_A_NAME]]\n");
        return 2;
    }
    return pagewheel::benchmark::run(size_t(calls), count > 2 ? arguments[2] : "");
}
