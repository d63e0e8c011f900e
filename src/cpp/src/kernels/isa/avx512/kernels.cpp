#include "kernels/isa/avx512/kernels.hpp"

#include "kernels/isa/avx512/vectors.hpp"
#include "kernels/simd/logits.hpp"
#include "kernels/simd/selective_ssm.hpp"
#include "kernels/simd/state.hpp"

namespace pagewheel::kernels::avx512 {

Kernels kernels(CpuFeatures features) {
    const bool bf16 = features.has(CpuFeature::fast_avx512_bf16);
    LinearKernels linear = linear_kernels();
    if (bf16) linear.bf16 = bf16_kernels();
    return {simd::logits_kernels<Avx512>(),
            linear,
            {decode_kernels, prefill_kernels, bf16 ? prefill_kernels_bf16 : prefill_kernels},
            simd::state_kernels<Avx512>(),
            simd::ssm_kernels<Avx512>()};
}

}  // namespace pagewheel::kernels::avx512
