// The kernels of AMX. Several files, which compile side by side.
#pragma once

#include "kernels/kernels.hpp"

namespace pagewheel::kernels::amx {

Kernels kernels(CpuFeatures features);
PrefillKernels prefill_kernels_bf16();

}  // namespace pagewheel::kernels::amx
