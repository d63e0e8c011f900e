// Attention in f32 arithmetic.
#include "kernels/attention/decode_kernel.hpp"
#include "kernels/attention/prefill_kernel.hpp"
#include "kernels/isa/avx2/kernels.hpp"
#include "kernels/isa/avx2/vectors.hpp"

namespace pagewheel::kernels::avx2 {
namespace {

template <CacheFormat Format>
using Decode = TileKernel<Avx2, Format, FloatArithmetic<Avx2, Format>>;
template <CacheFormat Format>
using Prefill = PrefillKernel<Avx2, FloatProducts<Avx2, Format>>;

}  // namespace

DecodeKernels decode_kernels(CacheFormat format) {
    return decode_kernels_of<Avx2, Decode>(format);
}

PrefillKernels prefill_kernels(CacheFormat format) {
    return prefill_kernels_of<Avx2, Prefill>(format);
}

}  // namespace pagewheel::kernels::avx2
