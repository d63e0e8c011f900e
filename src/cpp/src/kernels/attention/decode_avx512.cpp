// Decode with AVX-512: VNNI for u8 and u4, f32 arithmetic for the rest.
#if defined(__x86_64__)
#include "kernels/attention/decode_integer_avx512.hpp"
#include "kernels/attention/decode_kernel.hpp"
#include "kernels/attention/vectors_avx512.hpp"

namespace pagewheel::kernels {
namespace {

template <CacheFormat Format>
using Kernel = TileKernel<
    Avx512, Format,
    std::conditional_t<Format == CacheFormat::u8 || Format == CacheFormat::u4,
                       IntegerArithmetic<Avx512, Format>, FloatArithmetic<Avx512, Format>>>;

}  // namespace

const AttentionVariant& attention_avx512() {
    static constexpr AttentionVariant variant = attention_variant<Avx512, Kernel>();
    return variant;
}

}  // namespace pagewheel::kernels
#endif
