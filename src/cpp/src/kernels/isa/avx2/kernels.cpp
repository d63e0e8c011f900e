#include "kernels/isa/avx2/kernels.hpp"

#include "kernels/isa/avx2/vectors.hpp"
#include "kernels/simd/logits.hpp"

namespace pagewheel::kernels::avx2 {

Kernels kernels(CpuFeatures features) {
    const bool vnni = features.has(CpuFeature::avx_vnni);
    return {simd::logits_kernels<Avx2>(),
            vnni ? linear_kernels_vnni() : linear_kernels(),
            {decode_kernels, prefill_kernels, prefill_kernels}};
}

}  // namespace pagewheel::kernels::avx2
