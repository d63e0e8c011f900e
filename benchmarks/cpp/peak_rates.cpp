#include "peak_rates.hpp"

#include <chrono>

#include "kernels/cpu_features.hpp"
#include "kernels/isa.hpp"
#include "kernels/team.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/isa/amx/tiles.hpp"
#endif

namespace pagewheel::benchmark {
namespace {

#if defined(__x86_64__)

constexpr size_t loops = 100000;

using Sums = __m512[24];

// Sums in 24 registers: more than the products that are under way at once.
#define PAGEWHEEL_PEAK(name, instruction)                                          \
    [[gnu::target("avx512f")]] void name() {                                       \
        Sums sums;                                                                 \
        for (__m512& sum : sums) sum = _mm512_setzero_ps();                        \
        const __m512 x = _mm512_setzero_ps();                                      \
        for (size_t i = 0; i < loops; ++i) {                                       \
            _Pragma("GCC unroll 24") for (size_t s = 0; s < 24; ++s) asm volatile( \
                instruction " %1, %1, %0" : "+v"(sums[s]) : "v"(x));               \
        }                                                                          \
    }
PAGEWHEEL_PEAK(multiply_floats, "vfmadd231ps")
PAGEWHEEL_PEAK(multiply_bf16, "vdpbf16ps")
PAGEWHEEL_PEAK(multiply_bytes, "vpdpbusd")
#undef PAGEWHEEL_PEAK

void multiply_tiles() {
    const kernels::amx::InstructionTiles tiles;
    tiles.configure();
    for (size_t i = 0; i < loops / 4; ++i) {
        tiles.dpbf16<0, 4, 6>();
        tiles.dpbf16<1, 4, 7>();
        tiles.dpbf16<2, 5, 6>();
        tiles.dpbf16<3, 5, 7>();
    }
}

/// `operations` of a call of `multiply` on one thread.
double tera_of(void (*multiply)(), double operations) {
    const auto threads = size_t(tbb::this_task_arena::max_concurrency());
    const auto begin = std::chrono::steady_clock::now();
    kernels::run_phases(kernels::Phase{4 * threads, [&](size_t) { multiply(); }});
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    return operations * 4 * double(threads) / time.count() * 1e-12;
}

#endif

}  // namespace

std::vector<PeakRate> peak_rates() {
    std::vector<PeakRate> rates;
#if defined(__x86_64__)
    const CpuFeatures features = processor_features();
    const double floats = 24.0 * loops * 16 * 2;
    if (features.has(CpuFeature::avx512f))
        rates.push_back({"vfmadd231ps", tera_of(multiply_floats, floats)});
    if (features.has(CpuFeature::avx512_bf16))
        rates.push_back({"vdpbf16ps", tera_of(multiply_bf16, 2 * floats)});
    if (features.has(CpuFeature::avx512_vnni))
        rates.push_back({"vpdpbusd", tera_of(multiply_bytes, 4 * floats)});
    if (detected_isa().entry().required.has(CpuFeature::amx_tile))
        rates.push_back({"tdpbf16ps", tera_of(multiply_tiles, loops * 16.0 * 16 * 32 * 2)});
#endif
    return rates;
}

}  // namespace pagewheel::benchmark
