// The AVX2 variant with VNNI once more, so that tests run it on processors that have the
// instruction in AVX-512's encoding only.
#if defined(__x86_64__)
#include "kernels/quantized_linear_avx2_kernel.hpp"

namespace pagewheel::kernels {

const LinearVariant& linear_avx2_vnni_by_avx512();

const LinearVariant& linear_avx2_vnni_by_avx512() {
    return avx2_variant;
}

}  // namespace pagewheel::kernels
#endif
