// Decode with AVX2, FMA and F16C, in f32 arithmetic.
#if defined(__x86_64__)
#include "kernels/attention/decode_kernel.hpp"
#include "kernels/attention/vectors_avx2.hpp"

namespace pagewheel::kernels {
namespace {

template <CacheFormat Format>
using Kernel = TileKernel<Avx2, Format, FloatArithmetic<Avx2, Format>>;

}  // namespace

const AttentionVariant& attention_avx2() {
    static constexpr AttentionVariant variant = attention_variant<Avx2, Kernel>();
    return variant;
}

}  // namespace pagewheel::kernels
#endif
