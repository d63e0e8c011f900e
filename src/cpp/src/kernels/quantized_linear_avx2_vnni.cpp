#if defined(__x86_64__)
#include "kernels/quantized_linear_avx2_kernel.hpp"

namespace pagewheel::kernels {

const LinearVariant& linear_avx2_vnni() {
    return avx2_variant;
}

}  // namespace pagewheel::kernels
#endif
