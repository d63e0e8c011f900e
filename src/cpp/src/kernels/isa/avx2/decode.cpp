// Decode in f32 arithmetic.
#include "kernels/attention/decode_kernel.hpp"
#include "kernels/isa/avx2/kernels.hpp"
#include "kernels/isa/avx2/vectors.hpp"

namespace pagewheel::kernels::avx2 {
namespace {

template <CacheFormat Format>
using Kernel = TileKernel<Avx2, Format, FloatArithmetic<Avx2, Format>>;

}  // namespace

DecodeKernels decode_kernels() {
    return decode_kernels_of<Avx2, Kernel>();
}

}  // namespace pagewheel::kernels::avx2
