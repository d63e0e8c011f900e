#include "kernels/isa.hpp"

#include <cstdlib>
#include <string>

#include "check.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace pagewheel {
namespace {

Isa best_isa() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                        __builtin_cpu_supports("avx512vnni");
    if (avx2) return avx512 ? Isa::avx512 : Isa::avx2;
#endif
    return Isa::scalar;
}

Isa chosen_isa() {
    const Isa best = best_isa();
    const char* wanted = std::getenv("PAGEWHEEL_ISA");
    if (!wanted || !*wanted) return best;
    for (Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512}) {
        if (std::string(wanted) != isa_name(isa)) continue;
        check_argument(isa <= best, "PAGEWHEEL_ISA=", wanted, ": this processor's best is ",
                       isa_name(best));
        return isa;
    }
    throw std::invalid_argument(
        concat("PAGEWHEEL_ISA=", wanted, ": allowed are scalar, avx2 and avx512"));
}

}  // namespace

const char* isa_name(Isa isa) {
    switch (isa) {
        case Isa::scalar:
            return "scalar";
        case Isa::avx2:
            return "avx2";
        default:
            return "avx512";
    }
}

Isa detected_isa() {
    static const Isa isa = chosen_isa();
    return isa;
}

bool has_avx_vnni() {
#if defined(__x86_64__)
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & (1u << 4)) != 0;
#else
    return false;
#endif
}

bool has_avx512_bf16() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    return best_isa() == Isa::avx512 && __builtin_cpu_supports("avx512bf16");
#else
    return false;
#endif
}

}  // namespace pagewheel
