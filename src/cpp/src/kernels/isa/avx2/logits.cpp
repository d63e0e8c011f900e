#include "kernels/simd/logits.hpp"

#include "kernels/isa/avx2/kernels.hpp"
#include "kernels/isa/avx2/vectors.hpp"

namespace pagewheel::kernels::avx2 {

LogitsKernels logits_kernels() {
    return simd::logits_kernels<Avx2>();
}

}  // namespace pagewheel::kernels::avx2
