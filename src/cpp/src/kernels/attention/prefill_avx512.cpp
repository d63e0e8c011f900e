// Prompt chunks with AVX-512: 16-bit integers for u8, bf16 products for bf16 where the processor
// has them, f32 arithmetic for the rest.
#if defined(__x86_64__)
#include "kernels/attention/prefill_bf16_avx512.hpp"
#include "kernels/attention/prefill_float.hpp"
#include "kernels/attention/prefill_kernel.hpp"
#include "kernels/attention/prefill_words_avx512.hpp"
#include "kernels/attention/vectors_avx512.hpp"

namespace pagewheel::kernels {
namespace {

template <CacheFormat Format>
using Products =
    std::conditional_t<Format == CacheFormat::u8, WordProducts, FloatProducts<Avx512, Format>>;

template <CacheFormat Format>
using Bf16OrProducts =
    std::conditional_t<Format == CacheFormat::bf16, Bf16Products, Products<Format>>;

}  // namespace

const PrefillVariant& prefill_avx512() {
    static constexpr PrefillVariant variant = prefill_variant<Avx512, Products>();
    return variant;
}

const PrefillVariant& prefill_avx512_bf16() {
    static constexpr PrefillVariant variant = prefill_variant<Avx512, Bf16OrProducts>();
    return variant;
}

}  // namespace pagewheel::kernels
#endif
