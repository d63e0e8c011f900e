// Decode with VNNI for u8 and u4, in f32 arithmetic for the rest.
#include <type_traits>

#include "kernels/attention/decode_kernel.hpp"
#include "kernels/isa/avx512/decode_integer.hpp"
#include "kernels/isa/avx512/kernels.hpp"

namespace pagewheel::kernels::avx512 {
namespace {

template <CacheFormat Format>
using Arithmetic = std::conditional_t<sums_in_integers<Format>, IntegerArithmetic<Format>,
                                      FloatArithmetic<Avx512, Format>>;
template <CacheFormat Format>
using Kernel = TileKernel<Avx512, Format, Arithmetic<Format>>;

}  // namespace

DecodeKernels decode_kernels() {
    return decode_kernels_of<Avx512, Kernel>();
}

}  // namespace pagewheel::kernels::avx512
