// The kernels of AVX2, FMA and F16C. Several files, which compile side by side.
#pragma once

#include "kernels/kernels.hpp"

namespace pagewheel::kernels::avx2 {

LogitsKernels logits_kernels();
LinearKernels linear_kernels();
LinearKernels linear_kernels_vnni();  // with AVX-VNNI besides
DecodeKernels decode_kernels();
PrefillKernels prefill_kernels();

}  // namespace pagewheel::kernels::avx2
