#include "kernels/isa/avx2/kernels.hpp"

#include "kernels/isa/avx2/vectors.hpp"
#include "kernels/simd/logits.hpp"
#include "kernels/simd/selective_ssm.hpp"
#include "kernels/simd/state.hpp"

namespace pagewheel::kernels::avx2 {

Kernels kernels(CpuFeatures features) {
    const bool vnni = features.has(CpuFeature::avx_vnni);
    return {simd::logits_kernels<Avx2>(),
            vnni ? linear_kernels_vnni() : linear_kernels(),
            {decode_kernels, prefill_kernels, prefill_kernels},
            simd::state_kernels<Avx2>(),
            simd::ssm_kernels<Avx2>()};
}

}  // namespace pagewheel::kernels::avx2
