// The kernels as they are defined: what the others must equal.
#include "kernels/kernels.hpp"

namespace pagewheel::kernels::scalar {

Kernels kernels(CpuFeatures) {
    Kernels all{};
    all.logits = {argmax_scalar, sum_exp_scalar, find_above_scalar};
    all.linear = linear_reference();
    all.attention.few_rows.write = write_token_reference;
    return all;
}

}  // namespace pagewheel::kernels::scalar
