// What a processor's instructions are told apart by, and whether AMX's tiles may be used.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace pagewheel {

enum class CpuFeature {
    avx2,
    fma,
    f16c,
    avx_vnni,
    avx512f,
    avx512bw,
    avx512dq,
    avx512vl,
    avx512_vnni,
    avx512_bf16,
    avx512_fp16,
    /// AVX512_BF16 with more products a second than f32 has (bf16_features()).
    fast_avx512_bf16,
    amx_tile,
    amx_bf16,
};

/// A set of them.
class CpuFeatures {
public:
    constexpr CpuFeatures(std::initializer_list<CpuFeature> features = {}) {
        for (const CpuFeature feature : features) m_bits |= bit(feature);
    }

    constexpr bool has(CpuFeature feature) const { return (m_bits & bit(feature)) != 0; }
    constexpr bool has_all(CpuFeatures others) const { return (others.m_bits & ~m_bits) == 0; }
    constexpr CpuFeatures operator|(CpuFeatures others) const {
        others.m_bits |= m_bits;
        return others;
    }
    constexpr CpuFeatures without(CpuFeatures others) const {
        CpuFeatures rest = *this;
        rest.m_bits &= ~others.m_bits;
        return rest;
    }

private:
    static constexpr uint32_t bit(CpuFeature feature) { return 1u << unsigned(feature); }

    uint32_t m_bits = 0;
};

/// The features of the processor that this runs on, and that its operating system lets programs
/// use. Of AMX it may still refuse the use (tiles_are_permitted()).
CpuFeatures processor_features();

/// AMX's, from what CPUID's leaf 7 says in EDX and from XCR0, in which the operating system marks
/// the registers that it saves. Without tiles there are no instructions on them.
CpuFeatures tile_features(uint32_t leaf7_edx, uint64_t xcr0);

/// The features of a processor with AVX512_BF16, by the vendor that CPUID's leaf 0 names. AMD's
/// vdpbf16ps does twice as many operations a second as f32's products, and Intel's, which is not
/// meant for more than what AMX leaves over, half as many (docs/quantized_linear.md). Vendors that
/// nobody has measured count as Intel.
CpuFeatures bf16_features(std::string_view vendor);

/// Asks Linux for it (arch_prctl) at the first call, and remembers the answer. It holds for all
/// threads of the process, those that exist and those to come, and for children by fork(), whose
/// tiles are empty at first; a program that exec() starts asks anew.
///
/// To be asked only by who will use tiles: signal frames grow with it, and Linux refuses where a
/// thread's alternate signal stack is too small for that.
bool tiles_are_permitted();

}  // namespace pagewheel
