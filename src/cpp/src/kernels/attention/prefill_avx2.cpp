// Prompt chunks with AVX2, FMA and F16C, in f32 arithmetic.
#if defined(__x86_64__)
#include "kernels/attention/prefill_kernel.hpp"
#include "kernels/attention/vectors_avx2.hpp"

namespace pagewheel::kernels {
namespace {

template <CacheFormat Format>
using Products = FloatProducts<Avx2, Format>;

}  // namespace

const PrefillVariant& prefill_avx2() {
    static constexpr PrefillVariant variant = prefill_variant<Avx2, Products>();
    return variant;
}

}  // namespace pagewheel::kernels
#endif
