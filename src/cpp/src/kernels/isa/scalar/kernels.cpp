// The kernels as they are defined: what the others must equal.
#include "kernels/kernels.hpp"

namespace pagewheel::kernels::scalar {

Kernels kernels(CpuFeatures) {
    Kernels all{};
    all.logits = {
        argmax_scalar,     find_maxima_scalar,      sum_exp_scalar,     weigh_scalar,
        find_above_scalar, keep_between_scalar,     sum_between_scalar, sum_weighted_scalar,
        moments_scalar,    negate_distances_scalar, ban_unset_scalar};
    all.linear = linear_reference();
    all.attention.decode.write = write_token_reference;
    return all;
}

}  // namespace pagewheel::kernels::scalar
