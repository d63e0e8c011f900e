// AMX's kernels on tiles that AVX-512 computes. Several files, which compile side by side.
#pragma once

#include "kernels/kernels.hpp"

namespace pagewheel::kernels::amx_model {

Kernels kernels(CpuFeatures features);
PrefillKernels prefill_kernels_bf16();

}  // namespace pagewheel::kernels::amx_model
