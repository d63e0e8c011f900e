// Prefill chunks: 16-bit integers for u8, bf16 products for bf16 where the processor has them, f32
// arithmetic for the rest.
#include <type_traits>

#include "kernels/attention/prefill_kernel.hpp"
#include "kernels/isa/avx512/kernels.hpp"
#include "kernels/isa/avx512/prefill_bf16.hpp"
#include "kernels/isa/avx512/prefill_words.hpp"

namespace pagewheel::kernels::avx512 {
namespace {

template <CacheFormat Format>
using Products =
    std::conditional_t<Format == CacheFormat::u8, WordProducts, FloatProducts<Avx512, Format>>;

template <CacheFormat Format>
using Bf16OrProducts =
    std::conditional_t<Format == CacheFormat::bf16, Bf16Products, Products<Format>>;

template <CacheFormat Format>
using Kernel = PrefillKernel<Avx512, Products<Format>>;

template <CacheFormat Format>
using Bf16Kernel = PrefillKernel<Avx512, Bf16OrProducts<Format>>;

}  // namespace

PrefillKernels prefill_kernels(CacheFormat format) {
    return prefill_kernels_of<Avx512, Kernel>(format);
}

PrefillKernels prefill_kernels_bf16(CacheFormat format) {
    return prefill_kernels_of<Avx512, Bf16Kernel>(format);
}

}  // namespace pagewheel::kernels::avx512
