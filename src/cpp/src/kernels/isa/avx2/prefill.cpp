// Prefill chunks in f32 arithmetic.
#include "kernels/attention/prefill_kernel.hpp"
#include "kernels/isa/avx2/kernels.hpp"
#include "kernels/isa/avx2/vectors.hpp"

namespace pagewheel::kernels::avx2 {
namespace {

template <CacheFormat Format>
using Kernel = PrefillKernel<Avx2, FloatProducts<Avx2, Format>>;

}  // namespace

PrefillKernels prefill_kernels() {
    return prefill_kernels_of<Avx2, Kernel>();
}

}  // namespace pagewheel::kernels::avx2
