// Prompt chunks with AVX-512: 16-bit integers for u8, f32 arithmetic for the rest.
#if defined(__x86_64__)
#include "kernels/attention/prefill_float.hpp"
#include "kernels/attention/prefill_kernel.hpp"
#include "kernels/attention/prefill_words_avx512.hpp"
#include "kernels/attention/vectors_avx512.hpp"

namespace pagewheel::kernels {
namespace {

template <CacheFormat Format>
using Products =
    std::conditional_t<Format == CacheFormat::u8, WordProducts, FloatProducts<Avx512, Format>>;

}  // namespace

const PrefillVariant& prefill_avx512() {
    static constexpr PrefillVariant variant = prefill_variant<Avx512, Products>();
    return variant;
}

}  // namespace pagewheel::kernels
#endif
