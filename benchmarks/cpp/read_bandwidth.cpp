#include "read_bandwidth.hpp"

#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <atomic>
#include <chrono>

namespace pagewheel::benchmark {
namespace {

uint64_t sum(const uint64_t* words, size_t n) {
    uint64_t sums[16] = {};
    for (size_t i = 0; i + 16 <= n; i += 16)
        for (size_t j = 0; j < 16; ++j) sums[j] += words[i + j];
    uint64_t total = 0;
    for (uint64_t one : sums) total += one;
    return total;
}

}  // namespace

ReadBandwidth::ReadBandwidth(size_t bytes, int threads)
    : m_words(bytes / sizeof(uint64_t), 1), m_threads(threads) {}

double ReadBandwidth::measure() {
    constexpr size_t piece = 1 << 17;  // a megabyte
    const size_t pieces = m_words.size() / piece;
    std::atomic<uint64_t> total = 0;
    tbb::task_arena arena(m_threads);
    const auto begin = std::chrono::steady_clock::now();
    arena.execute([&] {
        tbb::parallel_for(size_t{0}, pieces,
                          [&](size_t i) { total += sum(&m_words[i * piece], piece); });
    });
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    m_sum += total;
    return static_cast<double>(pieces * piece * sizeof(uint64_t)) / time.count();
}

}  // namespace pagewheel::benchmark
