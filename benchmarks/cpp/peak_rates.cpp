#include "peak_rates.hpp"

#include <algorithm>
#include <chrono>

#include "kernels/cpu_features.hpp"
#include "kernels/isa.hpp"
#include "kernels/team.hpp"

#if defined(__x86_64__)
#include "kernels/isa/amx/tiles.hpp"
#endif

namespace pagewheel::benchmark {
namespace {

#if defined(__x86_64__)

constexpr size_t loops = 100000;

// Sums in 24 registers: more than the products that are under way at once. All of it is assembly,
// because GCC 12 keeps an array of sums in memory.
#define PAGEWHEEL_REGISTERS "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23"
#define PAGEWHEEL_PEAK(name, instruction)                                                       \
    [[gnu::target("avx512f")]] void name() {                                                    \
        size_t left = loops;                                                                    \
        asm volatile(                                                                           \
            "vpxord %%zmm24, %%zmm24, %%zmm24\n"                                                \
            ".irp n," PAGEWHEEL_REGISTERS                                                       \
            "\n vpxord %%zmm\\n, %%zmm\\n, %%zmm\\n\n .endr\n"                                  \
            "1:\n"                                                                              \
            ".irp n," PAGEWHEEL_REGISTERS "\n" instruction                                      \
            " %%zmm24, %%zmm24, %%zmm\\n\n .endr\n"                                             \
            "dec %0\n"                                                                          \
            "jnz 1b\n"                                                                          \
            : "+r"(left)::"cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", \
              "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm16",    \
              "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24");          \
    }
PAGEWHEEL_PEAK(multiply_floats, "vfmadd231ps")
PAGEWHEEL_PEAK(multiply_bf16, "vdpbf16ps")
PAGEWHEEL_PEAK(multiply_bytes, "vpdpbusd")
#undef PAGEWHEEL_PEAK
#undef PAGEWHEEL_REGISTERS

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

constexpr size_t read_at_once = 512;

[[gnu::target("avx512f")]] void read_memory(const char* from, size_t bytes) {
    for (const char* end = from + bytes; from < end; from += read_at_once)
        asm volatile(
            ".irp n,0,1,2,3,4,5,6,7\n"
            "vmovups 64*\\n(%0), %%zmm\\n\n"
            ".endr" ::"r"(from)
            : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "memory");
}

/// The best of three, as threads come late.
ReadRate read_rate(size_t bytes) {
    const auto threads = size_t(tbb::this_task_arena::max_concurrency());
    const std::vector<std::vector<char>> memory(threads, std::vector<char>(bytes, 1));
    const size_t passes = std::max<size_t>(1, (size_t{256} << 20) / bytes);
    ReadRate rate{bytes, 0};
    for (size_t round = 0; round < 3; ++round) {
        const auto begin = std::chrono::steady_clock::now();
        kernels::run_phases(kernels::Phase{threads, [&](size_t thread) {
                                               for (size_t i = 0; i < passes; ++i)
                                                   read_memory(memory[thread].data(), bytes);
                                           }});
        const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
        rate.gigabytes = std::max(rate.gigabytes,
                                  double(threads) * double(passes * bytes) / time.count() * 1e-9);
    }
    return rate;
}

/// `operations` of a call of `multiply` on one thread. The best of three, as threads come late.
double tera_of(void (*multiply)(), double operations) {
    const auto threads = size_t(tbb::this_task_arena::max_concurrency());
    double best = 0;
    for (size_t round = 0; round < 3; ++round) {
        const auto begin = std::chrono::steady_clock::now();
        kernels::run_phases(kernels::Phase{4 * threads, [&](size_t) { multiply(); }});
        const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
        best = std::max(best, operations * 4 * double(threads) / time.count() * 1e-12);
    }
    return best;
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

std::vector<ReadRate> read_rates([[maybe_unused]] size_t most) {
    std::vector<ReadRate> rates;
#if defined(__x86_64__)
    if (processor_features().has(CpuFeature::avx512f))
        for (const size_t bytes : {1 << 20, 16 << 20, 1 << 29})
            if (bytes <= most) rates.push_back(read_rate(bytes));
#endif
    return rates;
}

}  // namespace pagewheel::benchmark
