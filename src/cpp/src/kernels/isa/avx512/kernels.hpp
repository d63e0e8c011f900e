// The kernels of AVX-512: F, BW, DQ, VL and VNNI. Several files, which compile side by side.
#pragma once

#include "kernels/kernels.hpp"

namespace pagewheel::kernels::avx512 {

/// With products of bf16 only where they are fast.
Kernels kernels(CpuFeatures features);
LinearKernels linear_kernels();
Bf16Kernels bf16_kernels();  // with AVX512_BF16 besides
/// Bf16Kernels::unpack, with AVX512_BF16 besides.
void unpack_tile(const PackedLinear& weights, size_t tile, size_t begin, size_t end, uint16_t* out);
DecodeKernels decode_kernels(CacheFormat format);
PrefillKernels prefill_kernels(CacheFormat format);
PrefillKernels prefill_kernels_bf16(CacheFormat format);  // with AVX512_BF16 besides

}  // namespace pagewheel::kernels::avx512
