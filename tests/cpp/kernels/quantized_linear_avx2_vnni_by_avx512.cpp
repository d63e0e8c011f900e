// AVX2's linear kernels with VNNI once more, so that tests run them on processors that have the
// instruction in AVX-512's encoding only.
#if defined(__x86_64__)
#include "kernels/isa/avx2/linear.hpp"

namespace pagewheel::kernels {

LinearKernels linear_avx2_vnni_by_avx512();

LinearKernels linear_avx2_vnni_by_avx512() {
    return avx2::kernels_here();
}

}  // namespace pagewheel::kernels
#endif
