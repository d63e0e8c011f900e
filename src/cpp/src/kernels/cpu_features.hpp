// What a processor's instructions are told apart by.
#pragma once

#include <cstdint>
#include <initializer_list>

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

private:
    static constexpr uint32_t bit(CpuFeature feature) { return 1u << unsigned(feature); }

    uint32_t m_bits = 0;
};

/// Those of the processor that this runs on, and that its operating system lets programs use.
CpuFeatures processor_features();

}  // namespace pagewheel
