#include "kernels/cpu_features.hpp"

#if defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#if defined(__x86_64__)
#include <cpuid.h>

#include <cstring>
#include <string>
#endif

namespace pagewheel {
namespace {

CpuFeatures if_present(bool present, CpuFeature feature) {
    return present ? CpuFeatures{feature} : CpuFeatures{};
}

#if defined(__x86_64__)
/// 0 where the operating system does not say.
uint64_t extended_control_register() {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & (1u << 27))) return 0;
    asm("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
    return uint64_t(edx) << 32 | eax;
}

CpuFeatures tile_features_here() {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return {};
    return tile_features(edx, extended_control_register());
}

std::string vendor() {
    unsigned eax = 0, words[3] = {};  // in this order
    if (!__get_cpuid(0, &eax, &words[0], &words[2], &words[1])) return "";
    std::string name(sizeof words, 0);
    std::memcpy(name.data(), words, sizeof words);
    return name;
}
#endif

}  // namespace

CpuFeatures bf16_features(std::string_view vendor) {
    return CpuFeatures{CpuFeature::avx512_bf16} |
           if_present(vendor == "AuthenticAMD", CpuFeature::fast_avx512_bf16);
}

CpuFeatures tile_features(uint32_t leaf7_edx, uint64_t xcr0) {
    constexpr uint64_t tile_config = 1u << 17, tile_data = 1u << 18;
    const bool saved = (xcr0 & tile_config) && (xcr0 & tile_data);
    if (!saved || !(leaf7_edx & (1u << 24))) return {};
    return CpuFeatures{CpuFeature::amx_tile} |
           if_present(leaf7_edx & (1u << 22), CpuFeature::amx_bf16);
}

CpuFeatures processor_features() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    // Not every compiler knows these three by name. They come with AVX2 and AVX-512, which the
    // system may switch off.
    const bool avx2 = __builtin_cpu_supports("avx2");
    const bool f16c = avx2 && __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & (1u << 29));
    const bool avx_vnni =
        avx2 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax & (1u << 4));
    const bool fp16 = __builtin_cpu_supports("avx512f") &&
                      __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (edx & (1u << 23));
    return if_present(avx2, CpuFeature::avx2) | if_present(f16c, CpuFeature::f16c) |
           if_present(avx_vnni, CpuFeature::avx_vnni) |
           if_present(__builtin_cpu_supports("fma"), CpuFeature::fma) |
           if_present(__builtin_cpu_supports("avx512f"), CpuFeature::avx512f) |
           if_present(__builtin_cpu_supports("avx512bw"), CpuFeature::avx512bw) |
           if_present(__builtin_cpu_supports("avx512dq"), CpuFeature::avx512dq) |
           if_present(__builtin_cpu_supports("avx512vl"), CpuFeature::avx512vl) |
           if_present(__builtin_cpu_supports("avx512vnni"), CpuFeature::avx512_vnni) |
           (__builtin_cpu_supports("avx512bf16") ? bf16_features(vendor()) : CpuFeatures{}) |
           if_present(fp16, CpuFeature::avx512_fp16) | tile_features_here();
#else
    return {};
#endif
}

bool tiles_are_permitted() {
#if defined(__linux__) && defined(__x86_64__)
    constexpr int request_permission = 0x1023, tile_data = 18;  // asm/prctl.h; XCR0's bit
    static const bool permitted = syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
    return permitted;
#else
    return false;
#endif
}

}  // namespace pagewheel
