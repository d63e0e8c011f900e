// The kernels of AVX2, FMA and F16C. Several files, which compile side by side.
#pragma once

#include "kernels/kernels.hpp"

namespace pagewheel::kernels::avx2 {

LinearKernels linear_kernels();
LinearKernels linear_kernels_vnni();  // with AVX-VNNI besides
DecodeKernels decode_kernels(CacheFormat format);
PrefillKernels prefill_kernels(CacheFormat format);

}  // namespace pagewheel::kernels::avx2
