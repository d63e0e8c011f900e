// Tile registers by the instructions of AMX (kernels/tiles.hpp says what they do).
#pragma once

#include "kernels/tiles.hpp"

namespace pagewheel::kernels::amx {
namespace {

/// The instructions are assembly, because the compiler's are macros that take no template
/// parameter. Being volatile, they keep their order.
class InstructionTiles {
public:
    /// Asks the processor what is configured, instead of remembering: OpenVINO's kernels, which run
    /// on the same threads, load and release configurations of their own. Between calls of ours
    /// nothing is loaded then.
    void configure() const {
        static constexpr TileConfig whole = TileConfig::whole();
        TileConfig now;
        asm volatile("sttilecfg %0" : "=m"(now));
        if (std::memcmp(&now, &whole, sizeof now) != 0) asm volatile("ldtilecfg %0" ::"m"(whole));
    }

    template <int T>
    [[gnu::always_inline]] void zero() const {
        asm volatile("tilezero %%tmm%c0" ::"i"(T));
    }
    template <int T>
    [[gnu::always_inline]] void load(const void* from, size_t stride) const {
        asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(T) : "memory");
    }
    template <int T>
    [[gnu::always_inline]] void load_streamed(const void* from, size_t stride) const {
        asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(T) : "memory");
    }
    template <int T>
    [[gnu::always_inline]] void store(void* to, size_t stride) const {
        asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(T) : "memory");
    }
    template <int C, int A, int B>
    [[gnu::always_inline]] void dpbf16() const {
        asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
    }
};

}  // namespace
}  // namespace pagewheel::kernels::amx
