// The kernels as they are defined: what the others must equal.
#include "kernels/kernels.hpp"

namespace pagewheel::kernels::scalar {

Kernels kernels(CpuFeatures) {
    Kernels all{};
    all.logits = scalar_logits;
    all.linear = linear_reference();
    all.state = {scalar_gated_delta_chunk, scalar_convolve};
    all.ssm = ssm_reference();
    return all;
}

}  // namespace pagewheel::kernels::scalar
