#include "kernels/isa/avx2/linear.hpp"

#include "kernels/isa/avx2/kernels.hpp"

namespace pagewheel::kernels::avx2 {

LinearKernels linear_kernels_vnni() {
    return kernels_here();
}

}  // namespace pagewheel::kernels::avx2
