#include "kernels/simd/logits.hpp"

#include "kernels/isa/avx512/kernels.hpp"
#include "kernels/isa/avx512/vectors.hpp"

namespace pagewheel::kernels::avx512 {

LogitsKernels logits_kernels() {
    return simd::logits_kernels<Avx512>();
}

}  // namespace pagewheel::kernels::avx512
